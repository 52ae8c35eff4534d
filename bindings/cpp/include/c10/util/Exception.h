#pragma once
#include <torch/base.h>
