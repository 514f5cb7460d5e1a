//! What a program sets of a communicator, `ncclConfig_t`.

use core::ffi::{CStr, c_char, c_void};

use outboard_wire::collectives::{CONFIG_NAMES, CONFIG_NUMBERS, CommConfig, UNDEFINED};

use super::{Failure, Outcome};

/// `NCCL_API_MAGIC`.
const MAGIC: u32 = 0xcafe_beef;
/// Of `ncclConfig_t`: the place of `magic`, behind `size`.
const MAGIC_AT: usize = 8;
/// The place of `blocking`.
pub(crate) const BLOCKING: u16 = 16;
/// The longest name of a communicator or network that goes to a server.
const LONGEST_NAME: usize = 255;

/// The configuration, if the program gives one.
///
/// # Safety
/// `config` is null or an `ncclConfig_t` of any release, whose strings end in a zero byte.
pub(crate) unsafe fn read(config: *const c_void) -> Outcome<Option<CommConfig>> {
    if config.is_null() {
        return Ok(None);
    }
    // SAFETY: every release's structure begins with its size and the magic number.
    let (size, magic) = unsafe {
        (config.cast::<usize>().read_unaligned(), config.byte_add(MAGIC_AT).cast::<u32>().read())
    };
    if magic != MAGIC {
        return Err(Failure::argument(
            "the ncclConfig_t was not initialised with NCCL_CONFIG_INITIALIZER",
        ));
    }
    let has = |at: u16, bytes: usize| usize::from(at) + bytes <= size;
    // SAFETY: the structure has so many bytes.
    let number = |at: u16| unsafe { config.byte_add(usize::from(at)).cast::<i32>().read() };
    let numbers = CONFIG_NUMBERS.iter().filter(|at| has(**at, 4)).map(|at| (*at, number(*at)));
    let name = |at: u16| -> Outcome<String> {
        if !has(at, size_of::<*const c_char>()) {
            return Ok(String::new());
        }
        // SAFETY: as above.
        let text = unsafe { config.byte_add(usize::from(at)).cast::<*const c_char>().read() };
        if text.is_null() {
            return Ok(String::new());
        }
        // SAFETY: by the contract above.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        if text.len() > LONGEST_NAME {
            return Err(Failure::argument("a name in the ncclConfig_t is too long"));
        }
        Ok(text)
    };
    let [net, comm] = CONFIG_NAMES;
    let config = CommConfig {
        numbers: numbers.filter(|(_, value)| *value != UNDEFINED).collect(),
        net: name(net)?,
        name: name(comm)?,
    };
    match blocking(&config) {
        None | Some(0 | 1) => Ok(Some(config)),
        Some(other) => Err(Failure::argument(format!("config.blocking is {other}, not 0 or 1"))),
    }
}

fn blocking(config: &CommConfig) -> Option<i32> {
    config.numbers.iter().find(|(at, _)| *at == BLOCKING).map(|(_, value)| *value)
}

/// Whether calls of a communicator return when they are done; `inherited` if that is not set.
pub(crate) fn is_blocking(config: Option<&CommConfig>, inherited: bool) -> bool {
    config.and_then(blocking).map_or(inherited, |blocking| blocking != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure of that many bytes, all numbers undefined and all strings null.
    fn empty(size: usize) -> Vec<u64> {
        let mut bytes = [0_u8; 120];
        bytes[..8].copy_from_slice(&size.to_le_bytes());
        bytes[8..12].copy_from_slice(&MAGIC.to_le_bytes());
        for at in CONFIG_NUMBERS {
            bytes[usize::from(at)..usize::from(at) + 4].copy_from_slice(&UNDEFINED.to_le_bytes());
        }
        bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn read_words(words: &[u64]) -> Outcome<Option<CommConfig>> {
        // SAFETY: a structure as the tests make it.
        unsafe { read(words.as_ptr().cast()) }
    }

    #[test]
    fn what_is_set_is_read_up_to_the_size_that_the_program_knows() {
        assert_eq!(read_words(&empty(120)), Ok(Some(CommConfig::default())));
        let mut words = empty(120);
        words[2] = 4 << 32;
        words[8] = words[8] & 0xffff_ffff | 7 << 32;
        let name = c"train";
        words[6] = name.as_ptr() as u64;
        let read = read_words(&words).unwrap().unwrap();
        assert_eq!(read.numbers, [(16, 0), (20, 4), (68, 7)]);
        assert_eq!((read.net.as_str(), read.name.as_str()), ("", "train"));
        assert!(!is_blocking(Some(&read), true));
        words[0] = 48;
        let read = read_words(&words).unwrap().unwrap();
        assert_eq!((read.numbers.len(), read.name.as_str()), (2, ""));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { super::read(core::ptr::null()) }, Ok(None));
    }

    #[test]
    fn nonsense_is_refused() {
        let mut words = empty(120);
        words[1] = 0;
        assert!(read_words(&words).is_err());
        let mut words = empty(120);
        words[2] = words[2] & !0xffff_ffff | 9;
        assert!(read_words(&words).unwrap_err().sentence.contains("blocking is 9"));
    }
}
