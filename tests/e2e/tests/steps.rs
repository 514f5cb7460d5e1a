//! How often one step of a typical loop waits for the server: each wait costs a round trip, which
//! on real networks is what counts.

use std::collections::BTreeMap;

use outboard_e2e::{Program, Server};

/// Round trips by function, of so many steps.
fn waits(server: &Server, kind: &str, steps: u32) -> BTreeMap<String, u64> {
    let profile = Program::new("steps").arg(kind).arg(&steps.to_string()).statistics(server);
    let functions = profile["functions"].as_object().expect("functions are told");
    let trips = |function: &serde_json::Value| {
        function["round_trips"].as_u64().expect("round trips are counted")
    };
    functions.iter().map(|(name, function)| (name.clone(), trips(function))).collect()
}

/// Checks how many round trips a step takes: what 40 steps more need more.
fn check(kind: &str, wanted: u64) {
    let server = Server::start();
    let (few, many) = (waits(&server, kind, 10), waits(&server, kind, 50));
    let more: BTreeMap<&str, u64> = many
        .iter()
        .map(|(name, trips)| {
            (name.as_str(), trips - few.get(name).copied().unwrap_or(0).min(*trips))
        })
        .filter(|(_, trips)| *trips > 0)
        .collect();
    let total: u64 = more.values().sum();
    // Some of the first steps may still find something out.
    assert!(
        total.abs_diff(40 * wanted) <= 4,
        "40 steps of `{kind}` take {total} round trips, not {}: {more:?}",
        40 * wanted
    );
}

#[test]
fn a_step_of_training_waits_for_its_loss() {
    check("train", 1);
}

#[test]
fn inference_waits_for_its_result() {
    check("infer", 1);
}

#[test]
fn a_graph_is_waited_for_once() {
    check("graph", 1);
}

#[test]
fn stream_ordered_memory_is_had_without_waiting() {
    check("pool", 1);
}

#[test]
fn times_of_many_pairs_are_told_together() {
    check("times", 2);
}

#[test]
fn what_libraries_ask_again_is_known() {
    check("known", 1);
}

#[test]
fn large_copies_wait_once_each() {
    check("upload", 1);
    check("download", 1);
}
