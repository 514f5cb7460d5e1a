//! Files of safetensors: where their tensors are.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;

/// The longest header that safetensors reads.
const LONGEST_HEADER: u64 = 100_000_000;

/// Where the large tensors of a file are: none in a file of another format.
#[derive(Default)]
pub(crate) struct Tensors {
    /// Offset and bytes, by the offset.
    pub(crate) places: Vec<(u64, u64)>,
    /// The one behind the last that was copied, which loaders mostly copy next.
    pub(crate) next: AtomicUsize,
}

/// What a header says of a tensor, and of what is none.
#[derive(Deserialize)]
struct Entry {
    data_offsets: Option<(u64, u64)>,
}

impl Tensors {
    /// Those of `least` bytes and more; none if the file cannot be read or has another format.
    pub(crate) fn of(file: &File, least: u64) -> Option<Tensors> {
        let size = file.metadata().ok()?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).ok()?;
        let length = u64::from_le_bytes(length);
        if length > LONGEST_HEADER.min(size.checked_sub(8)?) {
            return None;
        }
        let mut header = vec![0; length as usize];
        file.read_exact_at(&mut header, 8).ok()?;
        let entries: BTreeMap<String, Entry> = serde_json::from_slice(&header).ok()?;
        let start = 8 + length;
        let place = |(from, to): (u64, u64)| {
            let is_inside = from <= to && to <= size - start;
            (is_inside && to - from >= least).then(|| (start + from, to - from))
        };
        let offsets = entries.values().filter_map(|entry| entry.data_offsets);
        let mut places: Vec<_> = offsets.filter_map(place).collect();
        places.sort_unstable();
        Some(Tensors { places, next: AtomicUsize::new(0) })
    }

    /// Which have so many bytes, the likeliest first.
    pub(crate) fn of_length(&self, bytes: u64) -> impl Iterator<Item = usize> {
        let count = self.places.len();
        let next = self.next.load(Ordering::Relaxed).min(count);
        let all = (next..count).chain(0..next);
        all.filter(move |number| self.places[*number].1 == bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::FromRawFd;

    use super::*;

    fn file_with(content: &[&[u8]]) -> File {
        // SAFETY: a name, and the descriptor that the call makes.
        let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"weights".as_ptr(), 0)) };
        content.iter().for_each(|part| file.write_all(part).unwrap());
        file
    }

    /// A file with that header and so many bytes behind it.
    fn weights(header: &str, bytes: u64) -> File {
        let length = (header.len() as u64).to_le_bytes();
        let file = file_with(&[&length, header.as_bytes()]);
        file.set_len(8 + header.len() as u64 + bytes).unwrap();
        file
    }

    #[test]
    fn headers_say_where_large_tensors_are() {
        let large = 100;
        let header = format!(
            r#"{{"__metadata__":{{"format":"pt"}},
            "b":{{"dtype":"U8","shape":[{large}],"data_offsets":[{large},{}]}},
            "a":{{"dtype":"U8","shape":[{large}],"data_offsets":[0,{large}]}},
            "small":{{"dtype":"U8","shape":[4],"data_offsets":[{},{}]}},
            "outside":{{"dtype":"U8","shape":[4],"data_offsets":[0,{}]}},
            "backwards":{{"dtype":"U8","shape":[4],"data_offsets":[{large},0]}}}}"#,
            2 * large,
            2 * large,
            2 * large + 4,
            u64::MAX,
        );
        let start = 8 + header.len() as u64;
        let tensors = Tensors::of(&weights(&header, 2 * large + 4), large).unwrap();
        assert_eq!(tensors.places, [(start, large), (start + large, large)]);
        assert!(tensors.of_length(large).eq([0, 1]));
        tensors.next.store(1, Ordering::Relaxed);
        assert!(tensors.of_length(large).eq([1, 0]));
        assert_eq!(tensors.of_length(large + 1).count(), 0);
    }

    #[test]
    fn other_files_have_no_tensors() {
        let long = u64::MAX.to_le_bytes();
        for content in [&b""[..], b"short", &long, b"\x7fELF\0\0\0\0 and so on"] {
            assert!(Tensors::of(&file_with(&[content]), 0).is_none(), "{content:?}");
        }
        assert!(Tensors::of(&weights("[1, 2]", 8), 0).is_none());
    }
}
