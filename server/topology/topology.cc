#include "server/topology/topology.h"
