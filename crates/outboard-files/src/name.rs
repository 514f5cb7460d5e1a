//! Names of files as clients say them: a source, and a path below it.

use crate::limits::LONGEST_TEXT;

/// Why a text names no file that could be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// A part of it is empty.
    #[error("it has an empty part")]
    Empty,
    /// It would lead somewhere else.
    #[error("it has a part `.` or `..`")]
    Dots,
    /// A path below something begins with no `/`.
    #[error("it begins with `/`, and is to be a path below the source")]
    Absolute,
    /// No path has such a byte.
    #[error("it has a byte 0")]
    Zero,
    /// It is too long.
    #[error("it has more than {LONGEST_TEXT} bytes")]
    TooLong,
}

/// A file's whole name. Each of its parts is one: no `..`, nothing empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(Vec<u8>);

impl Name {
    pub(crate) fn new(source: &str, path: &[u8]) -> Result<Name, BadName> {
        let source = checked_source(source)?;
        if path.len() > LONGEST_TEXT {
            return Err(BadName::TooLong);
        }
        if path.starts_with(b"/") {
            return Err(BadName::Absolute);
        }
        check_parts(path)?;
        Ok(Name([source.as_bytes(), b"/", path].concat()))
    }

    /// The path of the file below a source, if it lies there.
    pub(crate) fn below(&self, source: &str) -> Option<&[u8]> {
        self.0.strip_prefix(source.as_bytes())?.strip_prefix(b"/")
    }
}

/// A source without a `/` at its end.
pub(crate) fn checked_source(source: &str) -> Result<&str, BadName> {
    if source.len() > LONGEST_TEXT {
        return Err(BadName::TooLong);
    }
    let source = source.strip_suffix('/').unwrap_or(source);
    // `/dev/sda1`, or `//server/share` of SMB.
    let behind = source.strip_prefix('/').unwrap_or(source);
    check_parts(behind.strip_prefix('/').unwrap_or(behind).as_bytes())?;
    Ok(source)
}

fn check_parts(path: &[u8]) -> Result<(), BadName> {
    if path.contains(&0) {
        return Err(BadName::Zero);
    }
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" => return Err(BadName::Empty),
            b"." | b".." => return Err(BadName::Dots),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_a_source_and_a_path() {
        let name = Name::new("nfs1:/export", b"models/a.bin").unwrap();
        assert_eq!(name.below("nfs1:/export"), Some(&b"models/a.bin"[..]));
        assert_eq!(name.below("nfs1:/export/models"), Some(&b"a.bin"[..]));
        for other in ["nfs1:/exp", "nfs1:/export/mod", "nfs1:/export/models/a.bin", "nfs2:/export"]
        {
            assert_eq!(name.below(other), None, "{other}");
        }
        // The whole of a server, of SMB and of a disk.
        assert_eq!(Name::new("nfs1:/", b"a").unwrap().below("nfs1:"), Some(&b"a"[..]));
        assert_eq!(Name::new("//files/x", b"a").unwrap().below("//files/x"), Some(&b"a"[..]));
        assert_eq!(Name::new("/dev/sda1", b"a").unwrap().below("/dev/sda1"), Some(&b"a"[..]));
        assert_eq!(Name::new("x", b"...").unwrap().below("x"), Some(&b"..."[..]));
        assert_eq!(Name::new("x", b"\xff").unwrap().below("x"), Some(&b"\xff"[..]));
    }

    #[test]
    fn nothing_leads_out() {
        for (path, why) in [
            (&b""[..], BadName::Empty),
            (b"a//b", BadName::Empty),
            (b"a/", BadName::Empty),
            (b"..", BadName::Dots),
            (b"../x", BadName::Dots),
            (b"a/../../x", BadName::Dots),
            (b"a/.", BadName::Dots),
            (b"./a", BadName::Dots),
            (b"/etc/passwd", BadName::Absolute),
            (b"a\0b", BadName::Zero),
            (&[b'a'; LONGEST_TEXT + 1], BadName::TooLong),
        ] {
            assert_eq!(Name::new("nfs1:/export", path), Err(why), "{path:?}");
        }
        for (source, why) in [
            ("", BadName::Empty),
            ("/", BadName::Empty),
            ("///", BadName::Empty),
            ("nfs1://export", BadName::Empty),
            ("nfs1:/export//", BadName::Empty),
            ("nfs1:/export/..", BadName::Dots),
            ("nfs1:/export/../secret", BadName::Dots),
            ("nfs1:/./export", BadName::Dots),
            ("nfs1:/exp\0ort", BadName::Zero),
            (&"a".repeat(LONGEST_TEXT + 1), BadName::TooLong),
        ] {
            assert_eq!(Name::new(source, b"a"), Err(why), "{source:?}");
        }
    }

    proptest! {
        /// Whatever the name is: each part of what is opened is the name of one entry of a folder.
        #[test]
        fn what_is_opened_stays_below(
            source in "[a.:/]{0,8}", path in "[a./\\x00]{0,12}", cut in 0_usize..12,
        ) {
            if let Ok(name) = Name::new(&source, path.as_bytes()) {
                let share = source.get(..cut).unwrap_or(&source);
                let opened = checked_source(share).ok().and_then(|share| name.below(share));
                if let Some(opened) = opened {
                    prop_assert!(!opened.is_empty());
                    for part in opened.split(|byte| *byte == b'/') {
                        prop_assert!(![&b""[..], b".", b".."].contains(&part));
                        prop_assert!(!part.contains(&0));
                    }
                }
            }
        }

        #[test]
        fn plain_names_are_taken(parts in prop::collection::vec("[a-z][a-z.]{0,8}", 1..6)) {
            let path = parts.join("/");
            let name = Name::new("nfs1:/export", path.as_bytes()).unwrap();
            prop_assert_eq!(name.below("nfs1:/export"), Some(path.as_bytes()));
            for cut in 1..parts.len() {
                let source = format!("nfs1:/export/{}", parts[..cut].join("/"));
                let below = parts[cut..].join("/");
                prop_assert_eq!(name.below(&source), Some(below.as_bytes()));
            }
        }
    }
}
