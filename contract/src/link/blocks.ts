/**
 * Numbers of the streams in which files of machines move between nodes: moves.ts describes them.
 */

/** The length in the last record of a stream of blocks. */
export const BLOCKS_END = 0xff_ff_ff_ff;
/**
 * Blocks of this size are compared with zeros and hashed; a record has a multiple of it, or ends at the end
 * of the file.
 */
export const BLOCK_BYTES = 64 * 1024;
export const RECORD_BYTES_MAX = 1024 * 1024;
