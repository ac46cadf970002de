#include "server/partitioner/partitioner.h"
