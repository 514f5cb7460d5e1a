//! What the front keeps of a process is in `Process`, not in statics (decision 32): the statics
//! that remain are named here.

use std::collections::BTreeSet;
use std::fs;

use crate::tidy::files;

/// What is static though it changes, by file: of the operating system's process, or of one of its
/// threads.
const STATICS: &[(&str, &[&str])] = &[
    // Told to functions without an argument.
    ("gone.rs", &["GONE", "WHO"]),
    // A handler of the operating system's process.
    ("state.rs", &["HANDLER"]),
    ("host_call.rs", &["INSIDE", "USED"]),
    // A process leaves one profile.
    ("profile/block.rs", &["BLOCKS"]),
    ("profile/mod.rs", &["FIRST", "HERE", "ONCE", "WANTED"]),
    ("profile/write.rs", &["FILE"]),
    ("refusals.rs", &["REFUSED"]),
    // Libraries keep their addresses.
    ("tables.rs", &["TABLES"]),
    // A thread's own.
    ("capture/mod.rs", &["MODE"]),
    // And what the environment says.
    ("collectives/group.rs", &["GROUP", "LIMIT"]),
    ("context/stack.rs", &["BELOW", "TOP"]),
    ("logs.rs", &["GIVEN", "REASON", "TELLING", "WARNING"]),
    ("recent.rs", &["KEPT"]),
    ("stream/default.rs", &["OF_THREAD"]),
];

/// The names of statics whose value may change; a table of plain numbers or texts is none.
fn changing(text: &str) -> BTreeSet<&str> {
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    let declared = code.lines().filter_map(|line| {
        line.trim_start()
            .trim_start_matches("pub(super) ")
            .trim_start_matches("pub(crate) ")
            .strip_prefix("static ")
    });
    declared
        .filter(|rest| {
            !["&[(", "[u32;", "[u64;", "LazyLock<Interface>"]
                .iter()
                .any(|plain| rest.contains(plain))
        })
        .filter_map(|rest| rest.split(':').next())
        .collect()
}

#[test]
fn the_front_keeps_no_process_in_statics() {
    let mut found = Vec::new();
    for path in files(&[".rs"]) {
        let Some((_, file)) =
            path.to_str().and_then(|path| path.split_once("crates/outboard-front/src/"))
        else {
            continue;
        };
        if file.starts_with("generated/") || file.starts_with("tests") {
            continue;
        }
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        found.extend(changing(&text).into_iter().map(|name| (file.to_owned(), name.to_owned())));
    }
    found.sort();
    let mut allowed: Vec<(String, String)> = STATICS
        .iter()
        .flat_map(|(file, names)| names.iter().map(|name| ((*file).to_owned(), (*name).to_owned())))
        .collect();
    allowed.sort();
    assert_eq!(
        found, allowed,
        "what the front keeps of a process belongs into its part of `Front`; what is gone goes from the list, too"
    );
}

#[test]
fn statics_are_found() {
    let text = "static COUNT: AtomicU64 = x;\n    static OWN: Cell<bool> = y;\npub(super) static ALL: Mutex<()> = z;\nstatic NAMES: &[(u32, &str)] = &[];\n#[cfg(test)]\nstatic T: Cell<u8>;";
    assert_eq!(changing(text), BTreeSet::from(["ALL", "COUNT", "OWN"]));
}
