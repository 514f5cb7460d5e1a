//! Whether kernels of an image can write to standard output or standard error.

use crate::fatbin::choices;
use crate::locate::{Format, format_of};

/// What device code calls to print, and for an assertion that fails. The calls are the driver's to
/// resolve, so their names are in the image.
const CALLED: [&[u8]; 2] = [b"vprintf", b"__assertfail"];

/// Larger programs are not looked through, in bytes.
const MOST: usize = 1 << 20;

/// Whether kernels of an image may print on a device of architecture `sm`. It can say so of one
/// that does not, but never the other way round.
pub fn may_print(image: &[u8], sm: u32) -> bool {
    match format_of(image) {
        Ok(Format::Elf | Format::Ptx) => calls(image),
        Ok(Format::Fatbin) => {
            let Ok(Some(entry)) = choices(image, sm).map(|mut choices| choices.next()) else {
                return true;
            };
            entry.size > MOST as u64 || entry.contents().map_or(true, |program| calls(&program))
        }
        Err(_) => true,
    }
}

fn calls(program: &[u8]) -> bool {
    // Neither text nor a cubin's symbols are what bitcode looks like.
    program.len() > MOST
        || CALLED.iter().any(|name| program.windows(name.len()).any(|bytes| bytes == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri takes minutes for the largest text that is looked at")]
    fn who_calls_neither_does_not_print() {
        let quiet =
            b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n";
        assert!(!may_print(quiet, 90));
        for name in ["vprintf", "__assertfail"] {
            let text =
                format!(".version 7.0\n.target sm_70\n.address_size 64\n.extern .func {name};\n");
            assert!(may_print(text.as_bytes(), 90), "{name}");
        }
        assert!(may_print(b"\x01\x02\x03\x04 is no image", 90));
        assert!(may_print(b"", 90));
        let mut large = quiet.to_vec();
        large.resize(MOST + 1, b' ');
        assert!(may_print(&large, 90));
    }
}
