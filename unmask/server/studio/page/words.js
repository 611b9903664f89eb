// Split a text into masks, words, Chinese characters, and the characters between them.

const PIECES = /\[MASK\]|<mask>|\p{Script=Han}|(?:(?!\p{Script=Han})[\p{L}\p{M}\p{N}])+(?:['’]\p{L}+)*|\s+|./gsu;
const WORD = /^[\p{L}\p{N}]/u;

/** The pieces, joined, are the text. */
export const pieces = (text) => text.match(PIECES) ?? [];
export const isMask = (piece) => piece === "[MASK]" || piece === "<mask>";
export const isWord = (piece) => WORD.test(piece);
