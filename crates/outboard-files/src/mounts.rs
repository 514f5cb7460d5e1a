//! The mounts of a process, as its `/proc/self/mountinfo` lists them.

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Which part of its source it shows: a path that begins with `/`.
    pub(crate) root: Vec<u8>,
    /// Where it shows it.
    pub(crate) point: Vec<u8>,
    /// Such as `nfs4`.
    pub(crate) fs_type: Vec<u8>,
    /// Such as `nfs1:/export`; of some file systems any word.
    pub(crate) source: Vec<u8>,
}

/// The number of the mount on which a file was opened, out of the text of its `fdinfo`.
pub(crate) fn number(fdinfo: &[u8]) -> Option<u64> {
    let mut lines = fdinfo.split(|byte| *byte == b'\n');
    decimal(lines.find_map(|line| line.strip_prefix(b"mnt_id:"))?.trim_ascii())
}

/// The mount of that number.
pub(crate) fn find(mountinfo: &[u8], number: u64) -> Option<Mount> {
    let mut lines = mountinfo.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        if decimal(words.next()?)? != number {
            return None;
        }
        // Between them: the parent and the device; behind them: options.
        let (root, point) = (words.nth(2)?, words.next()?);
        let mut words = words.skip(1).skip_while(|word| *word != b"-").skip(1);
        let (fs_type, source) = (words.next()?, words.next()?);
        Some(Mount {
            root: unescaped(root),
            point: unescaped(point),
            fs_type: unescaped(fs_type),
            source: unescaped(source),
        })
    })
}

impl Mount {
    /// Where a path of this machine lies in the mount's source, without a `/` in front; none if it
    /// does not lie below the mount.
    pub(crate) fn below_source(&self, path: &[u8]) -> Option<Vec<u8>> {
        let below = path.strip_prefix(without_end(&self.point))?.strip_prefix(b"/")?;
        let root = without_end(&self.root);
        if below.is_empty() || !self.root.starts_with(b"/") || root.ends_with(b"//deleted") {
            return None;
        }
        let whole = [root, b"/", below].concat();
        Some(whole.strip_prefix(b"/").unwrap_or(&whole).to_vec())
    }
}

fn without_end(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Spaces and the like are `\` and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| first == b'\\');
        match digits.and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes
}

fn octal(digits: &[u8]) -> Option<u8> {
    let all = digits.iter().all(|digit| (b'0'..=b'7').contains(digit));
    let text = std::str::from_utf8(digits).ok().filter(|_| all)?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOUNTS: &str = r"23 28 0:21 / /proc rw,relatime shared:5 - proc proc rw
28 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
31 28 8:1 /people /people rw,relatime shared:30 - ext4 /dev/sda1 rw
40 28 0:45 / /mnt/export rw,relatime shared:40 master:3 - nfs4 nfs1:/export rw,vers=4.2,addr=10.0.0.1
41 28 0:45 / /mnt/sub rw,relatime - nfs4 nfs1:/export/sub rw,vers=4.2
42 28 8:1 /people/alice/data /data rw,relatime shared:30 - ext4 /dev/sda1 rw
43 28 0:50 / /scratch rw,noatime - lustre 10.0.0.1@tcp:/lustre rw,flock
44 28 0:51 / /var/lib/x/merged rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u
45 28 0:52 / /mnt/with\040space\134and\011tab rw,relatime - nfs4 nfs\0401:/ex\040port rw
46 28 0:53 /a//deleted /mnt/gone rw - ext4 /dev/sda3 rw
47 28 0:4 net:[4026531840] /run/netns/x rw - nsfs nsfs rw
48 28 0:54 / /mnt/nothing rw - tmpfs  rw
49 28 0:55 / /mnt/ceph rw,relatime shared:1 propagate_from:2 unbindable - ceph 10.0.0.1:6789,10.0.0.2:6789:/ rw
50 28 0:56 /
";

    fn found(number: u64) -> Mount {
        find(MOUNTS.as_bytes(), number).unwrap()
    }

    fn source(number: u64, path: &str) -> Option<(String, String)> {
        let mount = found(number);
        let below = mount.below_source(path.as_bytes())?;
        Some((String::from_utf8(mount.source).unwrap(), String::from_utf8(below).unwrap()))
    }

    fn is(source: &str, path: &str) -> Option<(String, String)> {
        Some((source.to_owned(), path.to_owned()))
    }

    #[test]
    fn a_file_has_a_place_in_its_source() {
        assert_eq!(source(40, "/mnt/export/models/a.bin"), is("nfs1:/export", "models/a.bin"));
        assert_eq!(source(41, "/mnt/sub/a.bin"), is("nfs1:/export/sub", "a.bin"));
        assert_eq!(source(28, "/etc/hosts"), is("/dev/sda2", "etc/hosts"));
        assert_eq!(source(31, "/people/alice/x"), is("/dev/sda1", "people/alice/x"));
        assert_eq!(source(42, "/data/x"), is("/dev/sda1", "people/alice/data/x"));
        assert_eq!(source(43, "/scratch/x y"), is("10.0.0.1@tcp:/lustre", "x y"));
        assert_eq!(source(44, "/var/lib/x/merged/a"), is("overlay", "a"));
        assert_eq!(source(45, "/mnt/with space\\and\ttab/a"), is("nfs 1:/ex port", "a"));
        assert_eq!(source(48, "/mnt/nothing/a"), is("", "a"));
        assert_eq!(source(49, "/mnt/ceph/a"), is("10.0.0.1:6789,10.0.0.2:6789:/", "a"));
    }

    #[test]
    fn what_is_not_below_a_mount_has_none() {
        for path in ["/mnt/exports/a", "/mnt/export", "/mnt/export/", "/etc/hosts", "", "a"] {
            assert_eq!(source(40, path), None, "{path}");
        }
        assert_eq!(source(46, "/mnt/gone/a"), None, "the part that it shows was deleted");
        assert_eq!(source(47, "/run/netns/x/a"), None);
        assert_eq!(find(MOUNTS.as_bytes(), 4), None);
        assert_eq!(find(MOUNTS.as_bytes(), 50), None, "the line is cut off");
    }

    #[test]
    fn a_mount_of_a_file_alone_has_none() {
        let line = "51 28 8:1 /etc/hosts /etc/hosts rw - ext4 /dev/sda1 rw";
        assert_eq!(find(line.as_bytes(), 51).unwrap().below_source(b"/etc/hosts"), None);
    }

    #[test]
    fn the_number_is_a_line_of_fdinfo() {
        let fdinfo = b"pos:\t0\nflags:\t0100000\nmnt_id:\t40\nino:\t12\n";
        assert_eq!(number(fdinfo), Some(40));
        assert_eq!(number(b"pos:\t0\nflags:\t02\n"), None);
        assert_eq!(number(b"mnt_id:\t-1\n"), None);
    }

    fn escaped(bytes: &[u8]) -> Vec<u8> {
        let escape = |byte: &u8| match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
            other => vec![*other],
        };
        bytes.iter().flat_map(escape).collect()
    }

    proptest! {
        #[test]
        fn escapes_are_undone(bytes in any::<Vec<u8>>()) {
            prop_assert_eq!(unescaped(&escaped(&bytes)), bytes);
        }

        #[test]
        fn any_text_is_a_list(text in any::<Vec<u8>>(), digits in "[0-9\\\\ /-]{0,40}") {
            let _ = (find(&text, 1), find(digits.as_bytes(), 1), number(&text));
            let _ = unescaped(digits.as_bytes());
        }
    }
}
