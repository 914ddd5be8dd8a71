/* The header of a zstd frame (RFC 8878, 3.1.1.1), as far as it determines the memory that decoding takes:
 *
 *   4 bytes          magic, 28 b5 2f fd
 *   1 byte           descriptor: bits 7-6 size of the content's size, 5 single segment, 1-0 of the dictionary's id
 *   0 or 1 byte      window: exponent in bits 7-3, eighths in bits 2-0; absent in a single segment
 *   0, 1, 2, 4       dictionary's id
 *   0, 1, 2, 4, 8    content's size; in a single segment it is the window
 */
#ifndef UNS_WIRE_ZSTD_FRAME_H
#define UNS_WIRE_ZSTD_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/span.h"

enum { UNS_ZSTD_MAX_HEADER = 18 };

/* How many of the last decoded bytes a decoder of this frame must keep. 0 for a skippable frame. false when there is no
 * frame header, or the span ends inside it (UNS_ZSTD_MAX_HEADER bytes hold any). */
bool uns_zstd_window(struct uns_span in, uint64_t *window_bytes);

#endif
