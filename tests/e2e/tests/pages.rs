//! Memory that host and device both use: only what was touched moves, and page-locked memory that no kernel is given moves once.

use outboard_e2e::{Program, Server};

/// What a program has asked of the device, through a server that shares no memory with it.
fn statistics(name: &str, args: &[&str]) -> serde_json::Value {
    let program = args.iter().fold(Program::new(name), |program, arg| program.arg(arg));
    program.env("OUTBOARD_TRANSPORT", "tcp").statistics(&Server::start())
}

fn round_trips(all: &serde_json::Value, function: &str) -> u64 {
    all["functions"][function]["round_trips"].as_u64().unwrap_or_else(|| panic!("no {function} in {all}"))
}

#[test]
fn only_what_was_touched_moves() {
    let all = statistics("touched_pages", &[]);
    let number = |name: &str| all[name].as_u64().unwrap_or_else(|| panic!("no {name} in {all}"));
    let (page, pinned) = (4096, 32 << 20);
    // Ten rounds of 64 pages, and a few neighbours of those that are read; the page of the result; two words of mapped memory.
    for (direction, pages) in [("to", 11 * 64 * page), ("from", 10 * 64 * 6 * page)] {
        let (moved, copied) =
            (number(&format!("page_bytes_{direction}_device")), number(&format!("bytes_{direction}_device")));
        assert!(moved >= 64 * page && moved < pages, "{direction}: {moved} bytes of pages");
        assert!(copied >= pinned + moved && copied < pinned + moved + (2 << 20), "{direction}: {copied} bytes in all");
    }
    assert!(number("page_faults") >= 64, "{all}");
}

/// A batch of 256 pages, each of 24 steps, that four threads write and a kernel reads: a few messages and round trips for each.
#[test]
fn batches_go_in_few_messages() {
    let all = statistics("batches", &["read", "24", "256", "4"]);
    let posted = all["posted"].as_u64().expect("messages are counted");
    assert!(posted < 24 * 10, "{posted} commands were posted");
    assert_eq!(all["page_bytes_to_device"], 24 * 256 * 4096);
}

#[test]
fn what_is_freed_where_nothing_is_left_to_do_is_not_waited_for() {
    let all = statistics("batches", &["given", "4", "16", "2"]);
    for function in ["cuMemFreeHost", "cuMemFree_v2"] {
        assert_eq!(round_trips(&all, function), 0, "{function}: {all}");
    }
    let all = statistics("virtual_memory", &[]);
    assert_eq!(round_trips(&all, "cuMemAddressFree"), 0, "{all}");
}
