// device_launch_parameters.h: everything a kernel needs from it is in simt.h.
#pragma once
#include "simt.h"
