// cuda.h: everything a kernel needs from it is in simt.h.
#pragma once
#include "simt.h"
