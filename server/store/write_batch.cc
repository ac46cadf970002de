#include "server/spec/resolve.h"
#include "server/store/store.h"
