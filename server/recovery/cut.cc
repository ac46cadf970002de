#include "server/recovery/cut.h"
