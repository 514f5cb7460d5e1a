//! Tests of the page.

use super::*;
use crate::results::{Measured, NATIVE, Round, Series, Streams, Unit};
use std::collections::BTreeMap;

fn example() -> Results {
    let series = |values: [f64; 3]| {
        let round = |value| Round {
            value,
            samples: 9,
            operations: 9,
            seconds: 1.0,
            client_cpu: 0.9,
            server_cpu: 1.8,
        };
        Series { rounds: values.map(round).to_vec(), missing: None }
    };
    let measured = |id: &str, unit, group, native, tcp| {
        let ways =
            BTreeMap::from([(NATIVE.to_owned(), series(native)), ("tcp".to_owned(), series(tcp))]);
        Measured { id: id.to_owned(), title: format!("what {id} is"), unit, group, ways }
    };
    let copy = |id: &str, rate: f64| {
        measured(
            id,
            Unit::Rate,
            Group::Copies,
            [rate, rate, rate * 1.1],
            [rate / 2.0, rate / 2.5, rate / 3.0],
        )
    };
    let mut failing = measured("copy.tiny.d2h", Unit::Time, Group::Copies, [7e-6; 3], [7e-6; 3]);
    failing.ways.insert(
        "tcp".into(),
        Series { rounds: Vec::new(), missing: Some("it | fell over".into()) },
    );
    Results {
        outboard: "0.1.0".into(),
        revision: Some("abc".into()),
        date: "2026-11-21".into(),
        command: "outboard bench --quick".into(),
        machine: BTreeMap::from([("device".to_owned(), "NVIDIA H200".to_owned())]),
        rounds: 3,
        quick: false,
        ways: vec![NATIVE.into(), "tcp".into()],
        skipped: vec!["The transport shm was left out: it is not there.".into()],
        lanes: 8,
        streams: vec![Streams { streams: 8, rounds: vec![30e9] }],
        streams_both: vec![Streams { streams: 8, rounds: vec![20e9] }],
        round_trip: vec![6e-6, 5.9e-6, 7e-6],
        measures: vec![
            measured(
                "launch.cost",
                Unit::Time,
                Group::Calls,
                [2e-6, 2.2e-6, 2.4e-6],
                [0.2e-6, 0.2e-6, 0.3e-6],
            ),
            measured("launch.sync", Unit::Time, Group::Calls, [7e-6; 3], [21e-6; 3]),
            copy("copy.pinned.h2d.16M", 54e9),
            copy("copy.pinned.h2d.64M", 54e9),
            copy("copy.pageable.d2h.64M", 18e9),
            failing,
            measured(
                "app.linear_eager",
                Unit::Time,
                Group::Applications,
                [0.3e-3; 3],
                [0.29e-3; 3],
            ),
        ],
    }
}

fn texts() -> Texts {
    let note = |measure: &str, why: &str| Note {
        measure: measure.into(),
        ways: vec!["tcp".into()],
        why: why.into(),
        closes: "Less of it.".into(),
    };
    let notes = vec![note("launch.", "All take long."), note("launch.sync", "It takes long.")];
    Texts { notes, rows: targets::rows().unwrap() }
}

#[test]
fn the_page_judges_and_explains() {
    let page = page(&example(), &texts(), &[("performance/copies.svg".to_owned(), "Copies")]);
    let row = |start: &str| {
        page.lines().find(|line| line.starts_with(&format!("| what {start} "))).unwrap().to_owned()
    };
    assert!(row("launch.cost").contains("| met |"), "{page}");
    assert!(row("launch.sync").contains("| **missed** |"), "{page}");
    // 21 µs where 17 are the target.
    assert!(page.contains("1.24 times the target. It takes long. Less of it."), "{page}");
    assert!(row("copy.tiny.d2h").contains("| it / fell over | – | **failed** |"), "{page}");
    assert!(
        page.contains("- what copy.tiny.d2h is, TCP: failed (it / fell over). Not explained yet."),
        "{page}"
    );
    assert!(!page.contains("All take long"));
    assert!(page.contains("![Copies](performance/copies.svg)"));
    assert!(page.contains("The transport shm was left out"));
    assert!(page.contains("2.20 µs (2.00–2.40)") && page.contains("200 ns (200–300)"), "{page}");
    assert!(page.contains("look for them all the time: 6.00 µs (5.90–7.00)."), "{page}");
    assert!(page.contains("| 8 | 30.0 GB/s | 20.0 GB/s |"), "{page}");
    // 0.9 s and 1.8 s for 9 operations.
    assert!(page.contains("| 100 ms + 200 ms |"), "{page}");
    assert!(!page.lines().any(|line| line.ends_with(' ')));
}

#[test]
fn a_page_and_its_plots_are_written() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    write(&example(), &texts(), &folder.join("performance.md")).unwrap();
    let page = fs::read_to_string(folder.join("performance.md")).unwrap();
    for link in page.split("](performance/").skip(1) {
        let name = link.split(')').next().unwrap();
        let svg = fs::read_to_string(folder.join("performance").join(name)).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("TCP"), "{name}");
    }
    assert_eq!(page.matches("](performance/").count(), 2, "pinned copies and applications");
}

#[test]
fn results_without_a_figure_still_make_a_page() {
    let empty = Results { ways: vec![NATIVE.into()], ..Results::default() };
    assert!(page(&empty, &texts(), &[]).contains("# Performance"));
    assert!(plots::draw(&empty).unwrap().is_empty());
}

#[test]
fn the_terminal_gets_every_median() {
    let short = for_terminal(&example(), &texts());
    let line = short.lines().find(|line| line.contains("what launch.cost is")).unwrap();
    assert!(line.contains("2.20 µs") && line.contains("0.100") && line.ends_with("met"), "{short}");
}
