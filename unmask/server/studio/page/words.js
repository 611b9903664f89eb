// A text in pieces: masks, words, Chinese characters, what stands between.

const PIECES = /\[MASK\]|<mask>|\p{Script=Han}|(?:(?!\p{Script=Han})[\p{L}\p{M}\p{N}])+(?:['’]\p{L}+)*|\s+|./gsu;
const WORD = /^[\p{L}\p{N}]/u;

/** Together they are the text. */
export const pieces = (text) => text.match(PIECES) ?? [];
export const isMask = (piece) => piece === "[MASK]" || piece === "<mask>";
export const isWord = (piece) => WORD.test(piece);
