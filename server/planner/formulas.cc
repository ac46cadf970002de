#include "server/planner/formulas.h"
