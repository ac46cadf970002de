#include "server/rendezvous/store_table.h"
