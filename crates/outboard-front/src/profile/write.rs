//! The file in which a process leaves its profile.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use outboard_abi::CUresult;

use super::block::{self, Sum};
use super::{BACKGROUND, FUNCTIONS, lived, name};

/// The file that is asked for. Set to nothing is not set.
pub(super) fn path() -> Option<OsString> {
    let named = |variable| std::env::var_os(variable).filter(|path| !path.is_empty());
    named("OUTBOARD_PROFILE").or_else(|| named("OUTBOARD_STATS_FILE"))
}

/// Name, how often, with which error.
type Refused = (String, u64, CUresult);

/// Writes the profile, if one is asked for. `gather` gives what the backend counts of its
/// connection, as JSON values, and what was refused.
pub(crate) fn write(gather: impl FnOnce() -> (Vec<(&'static str, String)>, Vec<Refused>)) {
    if let Some(path) = path() {
        let (link, refused) = gather();
        // There is nobody to tell if it cannot be written.
        let _ = std::fs::write(with_process(&path, std::process::id()), json(&link, refused));
    }
}

/// The profile of this process. `link` is what the backend counts of its connection, as JSON
/// values.
fn json(link: &[(&'static str, String)], refused: Vec<Refused>) -> String {
    let all: Vec<(&str, Sum)> = (0..FUNCTIONS)
        .map(|function| (name(function), block::sum(function)))
        .filter(|(_, sum)| {
            sum.calls + sum.round_trips + sum.to_device + sum.from_device + sum.nanoseconds > 0
        })
        .collect();
    let total = |of: fn(&Sum) -> u64| all.iter().map(|(_, sum)| of(sum)).sum::<u64>();
    let entered = total(|sum| sum.calls);
    let local = entered - total(|sum| sum.posted + sum.waited);
    let program = std::env::current_exe().ok();
    let program =
        program.as_deref().and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy();
    let mut json =
        format!("{{\"process\": {}, \"program\": {}", std::process::id(), quoted(&program));
    let _ = write!(
        json,
        ", \"entered\": {entered}, \"local\": {local}, \"lived\": {:.6}",
        lived().as_secs_f64()
    );
    for (name, value) in link {
        let _ = write!(json, ", \"{name}\": {value}");
    }
    json.push_str(", \"functions\": {");
    for (index, (name, sum)) in all.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Nobody calls what happens in the background.
        let local = sum.calls.saturating_sub(sum.posted + sum.waited);
        let _ = write!(
            json,
            "{comma}\"{name}\": {{\"calls\": {}, \"local\": {local}, \"posted\": {}, \"waited\": {}, \"round_trips\": {}, \
             \"bytes_to_device\": {}, \"bytes_from_device\": {}, \"seconds_waiting\": {:.9}, \"longest_wait\": {:.9}, \"shortest_answer\": {:.9}}}",
            sum.calls,
            sum.posted,
            sum.waited,
            sum.round_trips,
            sum.to_device,
            sum.from_device,
            sum.nanoseconds as f64 / 1e9,
            sum.longest as f64 / 1e9,
            sum.shortest as f64 / 1e9,
        );
    }
    json.push_str("}, \"errors\": {");
    let failed = all.iter().filter(|(_, sum)| sum.errors > 0);
    let failed = failed.map(|(name, sum)| ((*name).to_owned(), sum.errors, sum.last_error));
    let refused = refused.into_iter().map(|(name, count, last)| (name, count, u64::from(last.0)));
    for (index, (name, count, last)) in failed.chain(refused).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(json, "{comma}\"{name}\": {{\"count\": {count}, \"last\": {last}}}");
    }
    json.push_str("}}\n");
    json
}

const _: () = assert!(BACKGROUND < FUNCTIONS);

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

/// The name of the file, with the number of the process for each `%p`.
fn with_process(path: &OsStr, process: u32) -> OsString {
    let mut named = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(b"%p") {
            named.extend_from_slice(process.to_string().as_bytes());
            rest = behind;
        } else {
            named.push(*first);
            rest = others;
        }
    }
    OsString::from_vec(named)
}

#[cfg(test)]
mod tests {
    use super::{quoted, with_process};

    #[test]
    fn the_process_is_put_into_the_name() {
        assert_eq!(with_process("a/%p.json".as_ref(), 7), "a/7.json");
        assert_eq!(with_process("%p%p%".as_ref(), 12), "1212%");
        assert_eq!(with_process("plain".as_ref(), 12), "plain");
    }

    #[test]
    fn names_of_programs_are_quoted() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c ""#);
    }
}
