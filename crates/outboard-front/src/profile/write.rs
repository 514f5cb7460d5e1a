//! Writes a process's profile to its file.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;

use outboard_abi::CUresult;
use parking_lot::Mutex;
use serde::Serialize;

use super::block::{self, Sum};
use super::{BACKGROUND, FUNCTIONS, FileBytes, Statistics, lived, name, place};

/// Name, how often, with which error.
type Refused = (String, u64, CUresult);

/// What a process leaves.
#[derive(Debug, Serialize)]
struct Profile {
    process: u32,
    program: String,
    entered: u64,
    local: u64,
    /// Seconds from its first call to its end.
    lived: f64,
    #[serde(flatten)]
    backend: Statistics,
    #[serde(skip_serializing_if = "FileBytes::is_nothing")]
    files: FileBytes,
    functions: BTreeMap<&'static str, Function>,
    errors: BTreeMap<String, Errors>,
}

/// What was counted of one function.
#[derive(Debug, Serialize)]
struct Function {
    calls: u64,
    local: u64,
    posted: u64,
    waited: u64,
    round_trips: u64,
    bytes_to_device: u64,
    bytes_from_device: u64,
    seconds_waiting: f64,
    longest_wait: f64,
    shortest_answer: f64,
}

/// How often something failed, and with which error the last time.
#[derive(Debug, Serialize)]
struct Errors {
    count: u64,
    last: u64,
}

impl From<&Sum> for Function {
    fn from(sum: &Sum) -> Function {
        let seconds = |nanoseconds| nanoseconds as f64 / 1e9;
        Function {
            calls: sum.calls,
            // Nobody calls what happens in the background.
            local: sum.calls.saturating_sub(sum.posted + sum.waited),
            posted: sum.posted,
            waited: sum.waited,
            round_trips: sum.round_trips,
            bytes_to_device: sum.to_device,
            bytes_from_device: sum.from_device,
            seconds_waiting: seconds(sum.nanoseconds),
            longest_wait: seconds(sum.longest),
            shortest_answer: seconds(sum.shortest),
        }
    }
}

/// Writes the profile, if one is asked for. `gather` gives what the back end has counted, what was
/// moved of files, and what was refused.
pub(crate) fn write(gather: impl FnOnce() -> (Statistics, FileBytes, Vec<Refused>)) {
    if let Some(asked_for) = place::asked_for() {
        // One thread at a time: the one that writes now and then, or the one that exits. A forked
        // child has another file.
        static FILE: Mutex<Option<(u32, OsString)>> = Mutex::new(None);
        let mut file = FILE.lock();
        let process = std::process::id();
        let path = match &mut *file {
            Some((owner, path)) if *owner == process => path,
            other => &mut other.insert((process, place::of_this_program(&asked_for))).1,
        };
        let (backend, files, refused) = gather();
        let Ok(mut json) = serde_json::to_vec(&profile(backend, files, refused)) else { return };
        json.push(b'\n');
        // There is nobody to tell if it cannot be written.
        let _ = outboard_threads::writing(|| replace(path, &json));
    }
}

/// Writes a file such that whoever reads it finds all of this, or all of what was there before.
/// What is no plain file, such as a terminal, cannot be replaced.
fn replace(path: &OsStr, text: &[u8]) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return std::fs::write(path, text);
    }
    let mut unfinished = path.to_owned();
    unfinished.push(UNFINISHED);
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, path)
}

/// What is behind the name of a profile that is being written.
const UNFINISHED: &str = ".unfinished";

/// The profile of this process.
fn profile(backend: Statistics, files: FileBytes, refused: Vec<Refused>) -> Profile {
    let all: Vec<(&str, Sum)> = (0..FUNCTIONS)
        .map(|function| (name(function), block::sum(function)))
        .filter(|(_, sum)| {
            sum.calls + sum.round_trips + sum.to_device + sum.from_device + sum.nanoseconds > 0
        })
        .collect();
    let total = |of: fn(&Sum) -> u64| all.iter().map(|(_, sum)| of(sum)).sum::<u64>();
    let entered = total(|sum| sum.calls);
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name()).unwrap_or_default();
    let failed = all.iter().filter(|(_, sum)| sum.errors > 0).map(|(name, sum)| {
        ((*name).to_owned(), Errors { count: sum.errors, last: sum.last_error })
    });
    let refused = refused
        .into_iter()
        .map(|(name, count, last)| (name, Errors { count, last: u64::from(last.0) }));
    Profile {
        process: std::process::id(),
        program: program.to_string_lossy().into_owned(),
        entered,
        local: entered - total(|sum| sum.posted + sum.waited),
        lived: lived().as_secs_f64(),
        backend,
        files,
        errors: failed.chain(refused).collect(),
        functions: all.iter().map(|(name, sum)| (*name, Function::from(sum))).collect(),
    }
}

const _: () = assert!(BACKGROUND < FUNCTIONS);

#[cfg(test)]
mod tests {
    use outboard_abi::CUresult;
    use serde_json::{Value, json};

    use super::{Statistics, profile};

    /// The profile as its readers get it.
    fn read(backend: Statistics) -> Value {
        let refused = vec![("a \"table\"".to_owned(), 3, CUresult::CUDA_ERROR_NOT_SUPPORTED)];
        serde_json::to_value(profile(backend, super::FileBytes::default(), refused))
            .expect("it has names for keys")
    }

    #[test]
    fn what_a_back_end_says_stands_beside_what_is_counted_here() {
        let one = read(Statistics::SoftwareDevice { launches: 5 });
        assert_eq!((&one["launches"], &one["process"]), (&json!(5), &json!(std::process::id())));
        assert_eq!(one["errors"]["a \"table\""], json!({"count": 3, "last": 801}));
        let several = read(Statistics::Several {
            servers: vec![Statistics::Unused {}, Statistics::SoftwareDevice { launches: 1 }],
            bytes_linked: 8,
            bytes_shared: 5,
            bytes_relayed: 7,
            not_linked: None,
        });
        assert_eq!(several["servers"], json!([{}, {"launches": 1}]));
        assert_eq!(several["bytes_relayed"], json!(7));
        assert_eq!((&several["bytes_linked"], &several["bytes_shared"]), (&json!(8), &json!(5)));
        let unused = read(Statistics::Unused {});
        let mut names: Vec<&String> = unused.as_object().expect("a map").keys().collect();
        names.sort();
        let own = ["entered", "errors", "functions", "lived", "local", "process", "program"];
        assert_eq!(names, own);
    }
}
