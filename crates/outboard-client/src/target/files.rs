//! Files that name servers, and folders in which servers write themselves.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::TargetError;
use super::hosts::{Entry, split, written_out};
use crate::invitation::{Invitation, SCHEME};

/// The largest file of servers that is read, in bytes.
const FILE: u64 = 1 << 20;
/// What the name of a server's file in a folder ends with.
const SERVER: &str = ".server";
/// What stands in such a name between the server and the number of those started together.
const OF: &str = "-of-";

/// Has a program wait for servers that are about to write themselves; seconds may stand behind.
const WAIT: &str = ":wait";
/// For how long without.
const USUAL_WAIT: u64 = 60;
const MOST_WAIT: u64 = 24 * 60 * 60;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where entries come from that cannot be passed on by their addresses, as nobody else is to see
/// the tokens: an absolute path.
pub(super) type Origin = Arc<str>;

/// The name of the file in which a server writes itself in a folder: `rank` of `count` that were
/// started together, or a name of its own.
pub fn name_of_server(rank: &str, count: u32) -> String {
    format!("{rank}{OF}{count}{SERVER}")
}

/// Adds the entries of `@PATH` or `@PATH:wait=SECONDS`.
pub(super) fn entries(told: &str, all: &mut Vec<Entry>) -> Result<(), TargetError> {
    let (path, wait) = patience(told)?;
    let wrong = |why: String| TargetError::File { path: path.to_owned(), why };
    let deadline = wait.map(|wait| Instant::now() + wait);
    let mut found = look(Path::new(path));
    while let Some(deadline) = deadline
        && !matches!(found, Found::Whole(_))
        && Instant::now() < deadline
    {
        std::thread::sleep(LOOK_EVERY);
        found = look(Path::new(path));
    }
    let late = |why: String| match wait {
        Some(wait) => format!("{why}, and so it was for {} seconds", wait.as_secs()),
        None => why,
    };
    match found {
        Found::Whole(files) => files.iter().try_for_each(|file| of_file(path, file, all)),
        // Of what is there, nobody asked to wait for more.
        Found::Part(files, _) if wait.is_none() => {
            files.iter().try_for_each(|file| of_file(path, file, all))
        }
        Found::Part(files, count) => Err(wrong(late(format!(
            "{} of {count} servers that were started together have written themselves there",
            files.len()
        )))),
        Found::Nothing(why) => Err(wrong(late(why))),
    }
}

/// A path without what says how long to wait for it.
fn patience(told: &str) -> Result<(&str, Option<Duration>), TargetError> {
    if let Some(path) = told.strip_suffix(WAIT) {
        return Ok((path, Some(Duration::from_secs(USUAL_WAIT))));
    }
    let Some((path, seconds)) = told.rsplit_once(&format!("{WAIT}=")) else {
        return Ok((told, None));
    };
    let number = seconds.parse().ok().filter(|seconds| *seconds <= MOST_WAIT);
    let wrong = || TargetError::Wait { entry: told.to_owned(), seconds: seconds.to_owned() };
    Ok((path, Some(Duration::from_secs(number.ok_or_else(wrong)?))))
}

/// What is at a path.
enum Found {
    /// Files with all servers that are expected.
    Whole(Vec<PathBuf>),
    /// Files with some of so many.
    Part(Vec<PathBuf>, usize),
    /// None, and why not.
    Nothing(String),
}

fn look(path: &Path) -> Found {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Found::Nothing(error.to_string()),
    };
    if !metadata.is_dir() {
        return Found::Whole(vec![path.to_owned()]);
    }
    if !is_ours(&metadata) || metadata.mode() & 0o022 != 0 {
        return Found::Nothing(
            "others than its user could write servers into the folder: `chmod 700` it".to_owned(),
        );
    }
    let listed = match fs::read_dir(path) {
        Ok(listed) => listed,
        Err(error) => return Found::Nothing(error.to_string()),
    };
    let names = listed.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(SERVER)).collect();
    names.sort();
    let together = names
        .iter()
        .filter_map(|name| name.strip_suffix(SERVER)?.rsplit_once(OF)?.1.parse::<usize>().ok());
    let (expected, files): (usize, Vec<PathBuf>) =
        (together.max().unwrap_or(1), names.iter().map(|name| path.join(name)).collect());
    match files.len() {
        0 => Found::Nothing("no server has written itself into the folder".to_owned()),
        there if there < expected => Found::Part(files, expected),
        _ => Found::Whole(files),
    }
}

fn is_ours(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw()
}

/// The entries of a file: lists as on a command line, or what invites to a server, in one or more
/// lines. Text behind a `#` is a comment. `told` is the path that the user has written.
fn of_file(told: &str, path: &Path, all: &mut Vec<Entry>) -> Result<(), TargetError> {
    let shown = path.display().to_string();
    let wrong = |why: String| TargetError::File { path: shown.clone(), why };
    let found = fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !found.is_file() {
        return Err(wrong("it is no regular file".to_owned()));
    }
    if found.len() > FILE {
        return Err(wrong(format!("it has more than {FILE} bytes")));
    }
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let before = all.len();
    for (number, line) in text.lines().enumerate() {
        let list = line.split_once('#').map_or(line, |(list, _)| list).trim();
        if list.is_empty() {
            continue;
        }
        let in_line = |why: String| wrong(format!("line {}: {why}", number + 1));
        if list.starts_with(SCHEME) {
            let invitation: Invitation =
                list.parse().map_err(|mistake| in_line(format!("{mistake}")))?;
            let text = invitation.server.to_string();
            all.push(Entry { text, invitation: Some(invitation), origin: None });
            continue;
        }
        for entry in split(list) {
            if entry.starts_with('@') {
                return Err(in_line("a file of servers cannot name another".to_owned()));
            }
            written_out(list, entry, all).map_err(|error| in_line(error.to_string()))?;
        }
    }
    let new = &mut all[before..];
    if new.is_empty() {
        return Err(wrong("it names no server".to_owned()));
    }
    if new.iter().any(|entry| entry.invitation.is_some()) {
        if !is_ours(&found) || found.mode() & 0o077 != 0 {
            return Err(wrong(
                "it has tokens, and others than its user can read it: `chmod 600` it".to_owned(),
            ));
        }
        let origin = std::path::absolute(told).map_err(|error| wrong(error.to_string()))?;
        let origin: Origin = origin.display().to_string().into();
        new.iter_mut().for_each(|entry| entry.origin = Some(Arc::clone(&origin)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::target::{Targets, hosts};

    fn texts(list: &str) -> Result<Vec<String>, TargetError> {
        Ok(hosts::entries(list)?.into_iter().map(|entry| entry.text).collect())
    }

    fn invitation(server: &str) -> String {
        format!("outboard://obt_{}@{server}/sha256:{}\n", "0a".repeat(32), "1b".repeat(32))
    }

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_names_servers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers");
        let list = format!("gpu9,@{}", path.display());
        for (text, all) in [
            (
                "gpu1\ngpu[2-3]/0 # two more\n\n# no server\n gpu4, gpu5\n",
                Ok("gpu9 gpu1 gpu2/0 gpu3/0 gpu4 gpu5"),
            ),
            ("gpu1", Ok("gpu9 gpu1")),
            ("# nothing\n", Err("it names no server")),
            ("gpu1\n@other\n", Err("line 2: a file of servers cannot name another")),
            ("gpu1\n\ngpu[2\n", Err("line 3: `[2` in `gpu[2`")),
            ("gpu1,\n", Err("line 1: the list of servers `gpu1,` has an empty entry")),
        ] {
            fs::write(&path, text).unwrap();
            match (texts(&list), all) {
                (Ok(found), Ok(all)) => assert_eq!(found.join(" "), all, "{text}"),
                (Err(error), Err(reason)) => {
                    assert!(error.to_string().contains(reason), "{text}: {error}");
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        fs::write(&path, vec![b'#'; FILE as usize + 1]).unwrap();
        assert!(texts(&list).unwrap_err().to_string().contains("more than 1048576 bytes"));
    }

    #[test]
    fn what_is_not_there_is_said() {
        for (list, reason) in [
            ("@/there/is/no/such/file", "`/there/is/no/such/file`"),
            ("@/dev/null", "no regular file"),
            ("@/there/is/no/such/file:wait=0", "so it was for 0 seconds"),
            ("@/x:wait=", "`` in `/x:wait=` is no number of seconds"),
            ("@/x:wait=-1", "`-1`"),
            ("@/x:wait=99999999", "`99999999`"),
        ] {
            let error = texts(list).unwrap_err().to_string();
            assert!(error.contains(reason), "{list}: {error}");
        }
    }

    #[test]
    fn servers_that_write_themselves_are_waited_for() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("meet");
        let list = |wait: &str| format!("@{}{wait}:by-rank", folder.display());
        let parse = |wait: &str| list(wait).parse::<Targets>();
        assert!(parse("").unwrap_err().to_string().contains("No such file"));
        let there = folder.clone();
        let servers = std::thread::spawn(move || {
            fs::create_dir(&there).unwrap();
            fs::set_permissions(&there, fs::Permissions::from_mode(0o700)).unwrap();
            for (rank, server) in [("0001", "gpu2:80"), ("0000", "gpu1:80")] {
                std::thread::sleep(Duration::from_millis(100));
                let unfinished = there.join(format!("{rank}.unfinished"));
                write(&unfinished, &invitation(server), 0o600);
                fs::rename(unfinished, there.join(name_of_server(rank, 2))).unwrap();
            }
        });
        let targets = parse(":wait=20").unwrap();
        servers.join().unwrap();
        let known = |place: usize| targets.servers()[place].invitation.as_ref().unwrap();
        assert_eq!(known(0).server.to_string(), "gpu1:80", "in the order of their ranks");
        assert_eq!(known(1).server.to_string(), "gpu2:80");
        // No token is in what is passed on.
        assert_eq!(targets.to_string(), list(""));
        assert!(!format!("{targets:?}").contains("0a0a"));
        assert_eq!(parse("").unwrap(), targets);
        // One has gone.
        let first = folder.join(name_of_server("0000", 2));
        fs::remove_file(&first).unwrap();
        let error = parse(":wait=0").unwrap_err().to_string();
        assert!(error.contains("1 of 2 servers"), "{error}");
        assert_eq!(parse("").unwrap().servers().len(), 1);
        write(&first, &invitation("gpu1:80"), 0o640);
        assert!(parse("").unwrap_err().to_string().contains("chmod 600"));
        write(&first, "outboard://obt_1", 0o600);
        let error = parse("").unwrap_err().to_string();
        assert!(error.contains("line 1: its token") && !error.contains("obt_1"), "{error}");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(parse("").unwrap_err().to_string().contains("chmod 700"));
    }
}
