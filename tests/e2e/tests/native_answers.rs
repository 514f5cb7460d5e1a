//! What NVIDIA's driver answers to wrong arguments, at wrong times and to calls that are seldom
//! made, recorded in `tests/programs/native_answers.tsv`, and what is answered here.

use std::path::Path;

use outboard_e2e::{Driver, Outcome, Program, Server};

/// A line of the table.
struct Row<'a> {
    name: &'a str,
    native: &'a str,
    /// Where a client of Outboard answers otherwise; the table says why.
    here: Option<&'a str>,
}

fn table() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs/native_answers.tsv");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn rows(table: &str) -> Vec<Row<'_>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut fields = line.split('\t');
            let (name, native) = (fields.next(), fields.next());
            let here = fields.next();
            assert_eq!(here.is_some(), fields.next().is_some_and(|why| !why.is_empty()), "{line}");
            Row { name: name.unwrap_or_default(), native: native.unwrap_or_default(), here }
        })
        .collect()
}

/// The lines that a run printed otherwise than the table says.
fn differences(outcome: &Outcome, rows: &[Row<'_>], is_native: bool) -> Vec<String> {
    assert!(outcome.status.success(), "{outcome:?}");
    let said: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(said.len(), rows.len(), "the table has other rows: {}", outcome.stdout);
    let wanted = |row: &Row<'_>| match row.here {
        Some(here) if !is_native => format!("{}\t{here}", row.name),
        _ => format!("{}\t{}", row.name, row.native),
    };
    let pairs = said.iter().zip(rows).map(|(said, row)| (*said, wanted(row)));
    pairs.filter(|(said, wanted)| said != wanted).map(|(s, w)| format!("{s}, not {w}")).collect()
}

#[test]
fn calls_answer_as_natively() {
    let table = table();
    let rows = rows(&table);
    let program = Program::new("native_answers");
    let server = Server::start();
    let is_native = Driver::chosen() == Driver::Nvidia;
    for (way, outcome, is_native) in [
        ("directly", program.directly(), is_native),
        ("over TCP", program.clone().through(&server), false),
        ("through shared memory", program.clone().sharing_memory().through(&server), false),
    ] {
        let differences = differences(&outcome, &rows, is_native);
        assert!(differences.is_empty(), "{way}:\n{}", differences.join("\n"));
    }
}
