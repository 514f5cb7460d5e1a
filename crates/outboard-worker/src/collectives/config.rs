//! `ncclConfig_t`, as the server's NCCL takes it.

use std::ffi::{CString, c_void};

use outboard_wire::collectives::{CONFIG_NAMES, CONFIG_NUMBERS, CommConfig, UNDEFINED};

/// Bytes of the structure in 2.32; an older NCCL takes the beginning.
const BYTES: usize = 120;
/// `NCCL_API_MAGIC`.
const MAGIC: u32 = 0xcafe_beef;
/// The place of `blocking`: the worker waits for what it begins.
const BLOCKING: u16 = 16;

/// The structure, and the strings that it points to.
pub(super) struct Config {
    words: [u64; BYTES / 8],
    _names: Vec<CString>,
}

impl Config {
    pub(super) fn new(config: &CommConfig, release: u32) -> Config {
        let mut bytes = [0_u8; BYTES];
        let mut put = |at: u16, value: &[u8]| {
            bytes[usize::from(at)..usize::from(at) + value.len()].copy_from_slice(value);
        };
        put(0, &BYTES.to_ne_bytes());
        put(8, &MAGIC.to_ne_bytes());
        put(12, &release.to_ne_bytes());
        for at in CONFIG_NUMBERS {
            let given = config.numbers.iter().find(|(of, _)| *of == at && at != BLOCKING);
            let given = given.map_or(UNDEFINED, |(_, value)| *value);
            put(at, &if at == BLOCKING { 1 } else { given }.to_ne_bytes());
        }
        let mut names = Vec::new();
        for (at, name) in CONFIG_NAMES.into_iter().zip([&config.net, &config.name]) {
            let name = CString::new(name.as_str()).ok().filter(|name| !name.is_empty());
            let address = name.as_ref().map_or(0, |name| name.as_ptr().expose_provenance());
            put(at, &address.to_ne_bytes());
            names.extend(name);
        }
        let mut words = [0; BYTES / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
        }
        Config { words, _names: names }
    }

    /// Valid as long as this value.
    pub(super) fn pointer(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_sets_is_set_and_the_rest_undefined() {
        let given = CommConfig {
            numbers: vec![(16, 0), (20, 4), (500, 3)],
            net: String::new(),
            name: "train".to_owned(),
        };
        let config = Config::new(&given, 22809);
        let number = |at: usize| (config.words[at / 8] >> (at % 8 * 8)) as i32;
        assert_eq!((config.words[0], number(12)), (120, 22809));
        assert_eq!(number(16), 1, "the worker waits");
        assert_eq!((number(20), number(24), number(112)), (4, UNDEFINED, UNDEFINED));
        assert_eq!(config.words[4], 0);
        assert_eq!(config.words[6] as usize, config._names[0].as_ptr().expose_provenance());
    }
}
