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

/// Puts the table into the page.
pub(crate) fn write(rows: &[Row], exceptions: &[(&str, &str)]) -> Result<()> {
    let path = root().join("docs/clients.md");
    let page =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let new = replace(&page, &table(rows, exceptions))
        .with_context(|| format!("{} has no place for the table", path.display()))?;
    fs::write(&path, new).with_context(|| format!("cannot write {}", path.display()))?;
    step(&format!("{} is written", path.display()));
    Ok(())
}

fn replace(page: &str, table: &str) -> Option<String> {
    let (head, rest) = page.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}\n{table}\n{END}{tail}"))
}

fn table(rows: &[Row], exceptions: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "| client | how it was run | what came of it | to the first kernel's end |\n\
         |---|---|---|---|\n",
    );
    for Row { kind, how, came, first } in rows {
        let _ = writeln!(text, "| {kind} | {how} | {came} | {first} |");
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
    fn only_what_is_between_the_marks_is_replaced() {
        let row = Row { kind: "a", how: "b", came: "c".into(), first: "d".into() };
        let table = table(&[row], &[("p", "q")]);
        assert!(table.contains("| a | b | c | d |\n") && table.contains("| `p` | q |\n"));
        let page = format!("before\n{BEGIN}old\n{END}behind\n");
        let new = replace(&page, &table).unwrap();
        assert!(new.starts_with("before\n") && new.ends_with("behind\n") && !new.contains("old"));
        assert_eq!(replace(&new, &table).as_deref(), Some(new.as_str()));
        assert_eq!(replace("nothing", &table), None);
    }
}
