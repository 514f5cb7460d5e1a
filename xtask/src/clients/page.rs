//! The table of `docs/clients.md`, which says what was run by which kinds of clients.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use crate::util::{root, step};

/// A kind of client, and what came of a run there.
pub(crate) struct Row {
    pub(crate) kind: &'static str,
    pub(crate) how: &'static str,
    pub(crate) came: String,
    pub(crate) first: String,
}

/// Where the table begins and ends.
const BEGIN: &str = "<!-- What follows is written by `cargo xtask clients`. -->\n";
const END: &str = "<!-- End of what is written. -->\n";

/// Puts a row into the page's table, in the order of all kinds; the other kinds keep the rows that
/// they have there.
pub(crate) fn write(row: &Row, kinds: &[&str], exceptions: &[(&str, &str)]) -> Result<()> {
    let path = root().join("docs/clients.md");
    let page =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let new = replace(&page, |old| table(row, kinds, old, exceptions))
        .with_context(|| format!("{} has no place for the table", path.display()))?;
    fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))?;
    step(&format!("{} is written", path.display()));
    Ok(())
}

fn replace(page: &str, table: impl FnOnce(&str) -> String) -> Option<String> {
    let (head, rest) = page.split_once(BEGIN)?;
    let (old, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}\n{}\n{END}{tail}", table(old)))
}

fn table(row: &Row, kinds: &[&str], old: &str, exceptions: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "| client | how it was run | what came of it | to the first kernel's end |\n\
         |---|---|---|---|\n",
    );
    for name in kinds {
        let begin = format!("| {name} |");
        if row.kind == *name {
            let Row { how, came, first, .. } = row;
            let _ = writeln!(text, "{begin} {how} | {came} | {first} |");
        } else if let Some(line) = old.lines().find(|line| line.starts_with(&begin)) {
            let _ = writeln!(text, "{line}");
        }
    }
    if !exceptions.is_empty() {
        text.push_str("\nOf the emulated client's programs, these do not print the same:\n\n");
        text.push_str("| program | why |\n|---|---|\n");
        for (name, why) in exceptions {
            let _ = writeln!(text, "| `{name}` | {why} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_run_is_replaced() {
        let row = Row { kind: "a", how: "b", came: "c".into(), first: "d".into() };
        let new = |old: &str| table(&row, &["z", "a", "y"], old, &[("p", "q")]);
        let page = format!("before\n{BEGIN}| a | old |\n| z | kept |\n| x | gone |\n{END}behind\n");
        let new = replace(&page, new).unwrap();
        assert!(new.starts_with("before\n") && new.ends_with("behind\n"), "{new}");
        assert!(new.contains("|---|\n| z | kept |\n| a | b | c | d |\n\nOf the"), "{new}");
        assert!(new.contains("| `p` | q |\n") && !new.contains("old") && !new.contains("gone"));
        assert_eq!(replace("nothing", str::to_owned), None);
    }
}
