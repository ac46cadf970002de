#include "server/scheduler/scheduler.h"
