//! What the system says of a touch that it did not allow, in each processor's own words.

use std::ffi::c_void;

/// A touch of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    /// It is known to be a write. One that is not turns out to be one when it is repeated: nothing
    /// else is refused on a page that can be read.
    pub(super) write: bool,
    /// It was one of data. An instruction cannot be had from these pages, however often it is
    /// tried.
    pub(super) data: bool,
}

/// # Safety
/// The context is the one that the system has given a handler with `SA_SIGINFO`.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn of(context: *mut c_void) -> Touch {
    /// Bits of the page fault's error code.
    const WRITE: i64 = 2;
    const FETCH: i64 = 16;
    // SAFETY: by the contract above.
    let code =
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] };
    Touch { write: code & WRITE != 0, data: code & FETCH == 0 }
}

/// # Safety
/// The context is the one that the system has given a handler with `SA_SIGINFO`.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn of(context: *mut c_void) -> Touch {
    /// Where the records begin, and the bytes that they have.
    const RECORDS: usize = 288;
    const BYTES: usize = 4096;
    const _: () = assert!(RECORDS + BYTES == size_of::<libc::mcontext_t>());
    // SAFETY: by the contract above; the records are the last bytes of the machine's part.
    let (machine, records) = unsafe {
        let machine = &raw const (*context.cast::<libc::ucontext_t>()).uc_mcontext;
        let records = machine.cast::<u8>().add(RECORDS);
        (&*machine, std::slice::from_raw_parts(records, BYTES))
    };
    match syndrome(records) {
        Some(syndrome) => by(syndrome),
        // Emulators leave it out.
        None => Touch { write: false, data: machine.fault_address != machine.pc },
    }
}

/// The syndrome register among the records of a signal's frame: each begins with its kind and its
/// bytes, and one of the kind 0 ends them.
#[cfg(any(test, target_arch = "aarch64"))]
fn syndrome(mut records: &[u8]) -> Option<u64> {
    const HEAD: usize = 8;
    const SYNDROME: u32 = 0x4553_5201;
    loop {
        let (head, body) = records.split_first_chunk::<HEAD>()?;
        let [a, b, c, d, e, f, g, h] = *head;
        let (kind, bytes) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if kind == SYNDROME {
            return body.first_chunk().map(|word| u64::from_le_bytes(*word));
        }
        if kind == 0 || (bytes as usize) < HEAD {
            return None;
        }
        records = records.get(bytes as usize..)?;
    }
}

#[cfg(any(test, target_arch = "aarch64"))]
fn by(syndrome: u64) -> Touch {
    /// Classes of exceptions: both of a program, not of the system.
    const FETCH: u64 = 0x20;
    /// Of a data abort: it was a write, or an operation of the cache, which counts as one.
    const WRITE: u64 = 1 << 6;
    const CACHE: u64 = 1 << 8;
    let data = syndrome >> 26 & 0x3f != FETCH;
    Touch { write: data && syndrome & WRITE != 0 && syndrome & CACHE == 0, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let bytes = (8 + body.len()) as u32;
        [&kind.to_le_bytes(), &bytes.to_le_bytes(), body].concat()
    }

    #[test]
    fn the_syndrome_is_found_behind_other_records_and_nowhere_else() {
        let (floats, own) = (record(0x4650_8001, &[1; 520]), record(0x4553_5201, &[7; 8]));
        let all = [floats.clone(), own.clone(), vec![0; 8]].concat();
        assert_eq!(syndrome(&all), Some(0x0707_0707_0707_0707));
        assert_eq!(syndrome(&own), Some(0x0707_0707_0707_0707));
        for none in [
            vec![],
            vec![0; 64],
            own[..12].to_vec(),
            [floats.clone(), vec![0; 8], own.clone()].concat(),
            [vec![1, 0, 0, 0, 4, 0, 0, 0], own.clone()].concat(),
            [vec![1, 0, 0, 0, 255, 255, 255, 255], own].concat(),
        ] {
            assert_eq!(syndrome(&none), None, "{none:?}");
        }
    }

    #[test]
    fn reads_writes_and_fetches_of_arm() {
        // As Linux reports them: levels of translation in the low bits.
        let touch = |syndrome| (by(syndrome).write, by(syndrome).data);
        assert_eq!(touch(0x9200_0007), (false, true));
        assert_eq!(touch(0x9200_004f), (true, true));
        assert_eq!(touch(0x9200_014f), (false, true), "cleaning of a line");
        assert_eq!(touch(0x8200_000f), (false, false));
    }
}
