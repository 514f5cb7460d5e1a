//! What is printed of faults.

use std::time::{Duration, Instant};

use super::fault::Fault;
use super::seek::Verdict;

/// What came of a fault, and how long that took.
pub(super) struct Row<'a> {
    pub(super) fault: &'a Fault,
    pub(super) verdict: Verdict,
    taken: Duration,
}

impl Row<'_> {
    pub(super) fn of(fault: &Fault, seek: impl FnOnce() -> Verdict) -> Row<'_> {
        let started = Instant::now();
        let verdict = seek();
        Row { fault, verdict, taken: started.elapsed() }
    }
}

/// Faults, with their kinds and what is wrong.
pub(super) fn list(faults: &[Fault]) -> String {
    let rows = faults.iter().map(|fault| [fault.name.clone(), fault.kind.clone()]);
    let last = faults.iter().map(|fault| fault.sentence.clone());
    columns(rows, last)
}

/// Faults, with their kinds, the seconds that each took, and what found it.
pub(super) fn table(rows: &[Row<'_>]) -> String {
    let first = rows.iter().map(|row| {
        [row.fault.name.clone(), row.fault.kind.clone(), row.taken.as_secs().to_string()]
    });
    columns(first, rows.iter().map(|row| row.verdict.to_string()))
}

/// Columns as wide as what is in them, and a last one of any width.
fn columns<const N: usize>(
    rows: impl Iterator<Item = [String; N]>,
    last: impl Iterator<Item = String>,
) -> String {
    let rows: Vec<[String; N]> = rows.collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for (row, last) in rows.iter().zip(last) {
        for (word, width) in row.iter().zip(widths) {
            text += &format!("{word:width$}  ");
        }
        text += &last;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let rows = [["a", "bcd"], ["ef", ""]].map(|row| row.map(str::to_owned));
        let last = ["x y", "z"].map(str::to_owned);
        assert_eq!(columns(rows.into_iter(), last.into_iter()), "a   bcd  x y\nef       z\n");
    }
}
