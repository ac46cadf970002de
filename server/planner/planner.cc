#include "server/planner/planner.h"
