//! No text makes the parser panic, however it is damaged.

use outboard_ptx::parse;
use proptest::prelude::*;

const TEXT: &str = include_str!("data/compiled.ptx");

/// Pieces that reach deep into the grammar.
const PIECES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    ":",
    "@",
    "!",
    "|",
    "-",
    "+4",
    "<",
    ">",
    "=",
    "_",
    "\"",
    "/*",
    "0x",
    "0f",
    "1e9",
    "99999999999",
    "%r1",
    "%rd1",
    "%p1",
    "%tid.x",
    ".v4",
    ".u32",
    ".f16x2",
    ".reg",
    ".param",
    ".shared",
    ".align 3",
    ".entry",
    ".func",
    ".callprototype",
    ".branchtargets",
    "call",
    "ret",
    "mov.b64",
    "ld.global.v2.f32",
    "$L__BB0_2",
    "generic(",
    "WARP_SZ",
    "\u{e9}",
    "\0",
];

proptest! {
    #[test]
    fn replaced_words_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..PIECES.len(), 0usize..3), 1..8)
    ) {
        let mut words: Vec<&str> = TEXT.split_inclusive([' ', '\t', '\n', ',']).collect();
        for (at, piece, how) in edits {
            let at = at.index(words.len());
            match how {
                0 => words[at] = PIECES[piece],
                1 => words.insert(at, PIECES[piece]),
                _ => { words.remove(at); }
            }
        }
        let _ = parse(&words.concat());
    }

    #[test]
    fn replaced_bytes_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = TEXT.as_bytes()[..cut.index(TEXT.len()) + 1].to_vec();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
}
