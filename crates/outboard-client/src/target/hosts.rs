//! Lists of hosts as Slurm writes them, and ranges of device indices: what a list of servers is before
//! each of its entries is one server with one device or all of them.

use outboard_transport::Endpoint;

use super::TargetError;
use super::files::{self, Origin};
use crate::invitation::Invitation;

/// How many entries a list may have when everything in it is written out: more than the devices of
/// as many servers as a program can have.
const ENTRIES: usize = 4096;

/// One server with one device, or with all of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// HOST[:PORT][/INDEX] and the like.
    pub(super) text: String,
    /// What its file says of the server besides.
    pub(super) invitation: Option<Invitation>,
    /// The file, if it says such things of any server.
    pub(super) origin: Option<Origin>,
}

/// The entries of a list, written out: `gpu[1-2]/0-1` is `gpu1/0`, `gpu1/1`, `gpu2/0`, `gpu2/1`.
/// Reads the files that it names as `@FILE`.
pub(super) fn entries(list: &str) -> Result<Vec<Entry>, TargetError> {
    let mut all = Vec::new();
    for entry in split(list) {
        match entry.strip_prefix('@') {
            Some(path) => files::entries(path, &mut all)?,
            None => written_out(list, entry, &mut all)?,
        }
    }
    Ok(all)
}

/// Adds the entries that an entry stands for.
pub(super) fn written_out(
    list: &str,
    entry: &str,
    all: &mut Vec<Entry>,
) -> Result<(), TargetError> {
    let mut texts = Vec::new();
    write_out(list, entry, ENTRIES - all.len().min(ENTRIES), &mut texts)?;
    all.extend(texts.into_iter().map(|text| Entry { text, invitation: None, origin: None }));
    Ok(())
}

/// The parts between the commas that are in no bracket.
pub(super) fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    list.split(move |letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .map(str::trim)
}

/// Writes an entry of a list out.
fn write_out(
    list: &str,
    entry: &str,
    room: usize,
    all: &mut Vec<String>,
) -> Result<(), TargetError> {
    if entry.is_empty() {
        return Err(TargetError::Empty(list.to_owned()));
    }
    // A path may have any letters.
    let (hosts, indices) = if Endpoint::unix_path(entry).is_some() {
        (vec![entry.to_owned()], Vec::new())
    } else {
        let behind = Endpoint::behind_ssh(entry).unwrap_or(entry);
        let before = &entry[..entry.len() - behind.len()];
        let (hosts, indices) = match behind.split_once('/') {
            Some((hosts, indices)) => (hosts, indices_of(entry, indices)?),
            None => (behind, Vec::new()),
        };
        let hosts = hosts_of(entry, hosts)?.into_iter().map(|host| format!("{before}{host}"));
        (hosts.collect(), indices)
    };
    if hosts.len() * indices.len().max(1) > room {
        return Err(TargetError::TooLong(entry.to_owned()));
    }
    for host in hosts {
        if indices.is_empty() {
            all.push(host);
        } else {
            all.extend(indices.iter().map(|index| format!("{host}/{index}")));
        }
    }
    Ok(())
}

/// The hosts that a name with ranges in brackets stands for: the last range changes fastest.
fn hosts_of(entry: &str, name: &str) -> Result<Vec<String>, TargetError> {
    let mut all = vec![String::new()];
    let mut rest = name;
    while let Some((before, behind)) = rest.split_once('[') {
        let Some((inside, after)) = behind.split_once(']') else {
            return Err(TargetError::Range {
                entry: entry.to_owned(),
                range: format!("[{behind}"),
            });
        };
        // The brackets of an IPv6 address have colons in them.
        let choices = if inside.contains(':') {
            vec![format!("[{inside}]")]
        } else {
            numbers(entry, inside)?
        };
        if all.len() * choices.len() > ENTRIES {
            return Err(TargetError::TooLong(entry.to_owned()));
        }
        all = all
            .iter()
            .flat_map(|name| choices.iter().map(move |choice| format!("{name}{before}{choice}")))
            .collect();
        rest = after;
    }
    all.iter_mut().for_each(|name| name.push_str(rest));
    Ok(all)
}

/// The device indices behind a slash: `2`, `0-3`, or several such in brackets. What is none of these
/// is left for the reader of one entry to refuse.
fn indices_of(entry: &str, text: &str) -> Result<Vec<String>, TargetError> {
    match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(inside) => numbers(entry, inside),
        None if text.contains('-') && !text.starts_with('-') => numbers(entry, text),
        None => Ok(vec![text.to_owned()]),
    }
}

/// The numbers of ranges such as `1-3,8`, with as many digits as the first of a range is written
/// with.
fn numbers(entry: &str, ranges: &str) -> Result<Vec<String>, TargetError> {
    let wrong = |range: &str| TargetError::Range {
        entry: entry.to_owned(),
        range: if range.is_empty() { ranges.to_owned() } else { range.to_owned() },
    };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| digits)
    };
    let mut all = Vec::new();
    for range in ranges.split(',').map(str::trim) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            return Err(wrong(range));
        };
        if from > to {
            return Err(wrong(range));
        }
        if (to - from) as usize >= ENTRIES - all.len() {
            return Err(TargetError::TooLong(entry.to_owned()));
        }
        all.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(list: &str) -> Result<Vec<String>, TargetError> {
        Ok(entries(list)?.into_iter().map(|entry| entry.text).collect())
    }

    #[test]
    fn lists_are_written_out() {
        for (list, all) in [
            ("gpu1", "gpu1"),
            (" gpu1 , gpu2/0", "gpu1 gpu2/0"),
            ("gpu[1-3]", "gpu1 gpu2 gpu3"),
            ("gpu[1-2]/0-1", "gpu1/0 gpu1/1 gpu2/0 gpu2/1"),
            (
                "gpu[08-10,3]/[0,2-3]",
                "gpu08/0 gpu08/2 gpu08/3 gpu09/0 gpu09/2 gpu09/3 gpu10/0 gpu10/2 gpu10/3 gpu3/0 gpu3/2 gpu3/3",
            ),
            (
                "rack[1-2]-gpu[1,3]:80/1",
                "rack1-gpu1:80/1 rack1-gpu3:80/1 rack2-gpu1:80/1 rack2-gpu3:80/1",
            ),
            ("[::1]:80/0-1,[fe80::2]", "[::1]:80/0 [::1]:80/1 [fe80::2]"),
            ("unix:/run/a[1-2].sock/1,gpu[1]", "unix:/run/a[1-2].sock/1 gpu1"),
            (
                "ssh://me@gpu[1-2]:22/0,ssh://gpu3",
                "ssh://me@gpu1:22/0 ssh://me@gpu2:22/0 ssh://gpu3",
            ),
            (
                "vsock:host/0-1,vsock:[3-4]:80/1",
                "vsock:host/0 vsock:host/1 vsock:3:80/1 vsock:4:80/1",
            ),
            // The reader of one entry refuses these.
            ("gpu1/x,gpu1/-1,gpu1/", "gpu1/x gpu1/-1 gpu1/"),
        ] {
            assert_eq!(texts(list).unwrap().join(" "), all, "{list}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_with_a_reason() {
        for (list, reason) in [
            ("gpu1,,gpu2", "empty entry"),
            ("gpu[1-2", "`[1-2` in `gpu[1-2`"),
            ("gpu[]", "`` in `gpu[]`"),
            ("gpu[3-1]", "`3-1` in `gpu[3-1]`"),
            ("gpu[a-c]", "`a-c` in `gpu[a-c]`"),
            ("gpu[1-+3]", "`1-+3` in"),
            ("gpu1/0-", "`0-` in `gpu1/0-`"),
            ("gpu1/[0,]", "`0,` in `gpu1/[0,]`"),
            ("gpu[0-4294967295]", "more than 4096"),
            ("gpu[0-99999999999]", "`0-99999999999` in"),
            ("a[0-99]b[0-99]", "more than 4096"),
            ("gpu[0-63]/0-64", "more than 4096"),
        ] {
            let error = entries(list).unwrap_err().to_string();
            assert!(error.contains(reason), "{list}: {error}");
        }
    }

    proptest! {
        /// Whatever is written, there is an answer, and no endless list.
        #[test]
        fn any_text_is_answered(text in "[a-c0-9:,/ @\\[\\]-]{0,24}") {
            if let Ok(all) = entries(&text) {
                prop_assert!(all.len() <= ENTRIES);
            }
        }
    }
}
