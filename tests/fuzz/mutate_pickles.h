/* A target that includes this takes pickles: libFuzzer mutates its inputs opcode by opcode. */
#ifndef TESTS_FUZZ_MUTATE_PICKLES_H
#define TESTS_FUZZ_MUTATE_PICKLES_H

#include <stddef.h>
#include <stdint.h>

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

#endif
