//! Memory that host and device both use: only what was touched moves, and page-locked memory that
//! no kernel is given moves once.

use std::collections::BTreeMap;

use outboard_e2e::{Program, Server};

/// What a program has asked of the device, through a server that shares no memory with it.
fn statistics(name: &str, args: &[&str]) -> serde_json::Value {
    let program = args.iter().fold(Program::new(name), |program, arg| program.arg(arg));
    program.env("OUTBOARD_TRANSPORT", "tcp").statistics(&Server::start())
}

fn round_trips(all: &serde_json::Value, function: &str) -> u64 {
    all["functions"][function]["round_trips"]
        .as_u64()
        .unwrap_or_else(|| panic!("no {function} in {all}"))
}

#[test]
fn only_what_was_touched_moves() {
    let all = statistics("touched_pages", &[]);
    let number = |name: &str| all[name].as_u64().unwrap_or_else(|| panic!("no {name} in {all}"));
    let (page, pinned) = (4096, 32 << 20);
    // Ten rounds of 64 pages, and a few neighbours of those that are read; the page of the result;
    // two words of mapped memory.
    for (direction, pages) in [("to", 11 * 64 * page), ("from", 10 * 64 * 6 * page)] {
        let (moved, copied) = (
            number(&format!("page_bytes_{direction}_device")),
            number(&format!("bytes_{direction}_device")),
        );
        assert!(moved >= 64 * page && moved < pages, "{direction}: {moved} bytes of pages");
        assert!(
            copied >= pinned + moved && copied < pinned + moved + (2 << 20),
            "{direction}: {copied} bytes in all"
        );
    }
    assert!(number("page_faults") >= 64, "{all}");
}

/// A batch of 256 pages, each of 24 steps, that four threads write and a kernel reads: a few
/// messages and round trips for each.
#[test]
fn batches_go_in_few_messages() {
    let all = statistics("batches", &["read", "24", "256", "4"]);
    let posted = all["posted"].as_u64().expect("messages are counted");
    assert!(posted < 24 * 10, "{posted} commands were posted");
    assert_eq!(all["page_bytes_to_device"], 24 * 256 * 4096);
}

/// Batches whose addresses kernels are given and do not use: each goes to the device once, and
/// nothing comes back.
#[test]
fn what_the_device_leaves_alone_does_not_come_back() {
    let (steps, page, pages) = (96, 4096, 256);
    let all = statistics("batches", &["loader", "96", "256", "1"]);
    let number = |name: &str| all[name].as_u64().unwrap_or_else(|| panic!("no {name} in {all}"));
    let (to, from) = (number("page_bytes_to_device"), number("page_bytes_from_device"));
    assert!(to <= steps * pages * page && from <= 8 * pages * page, "{to} bytes went, {from} came");
    assert!(number("page_faults") <= 4 * steps, "{all}");
    // Questions whether a copy is done are the program's own. How many batches are asked for
    // depends on how far the device is behind.
    let functions = all["functions"].as_object().expect("functions are told");
    let trips = functions
        .keys()
        .filter(|name| *name != "cuEventQuery")
        .map(|name| round_trips(&all, name))
        .sum::<u64>();
    assert!(trips <= 2 * steps, "{trips} round trips: {all}");
}

#[test]
fn what_is_freed_where_nothing_is_left_to_do_is_not_waited_for() {
    let all = statistics("batches", &["given", "4", "16", "2"]);
    for function in ["cuMemFreeHost", "cuMemFree_v2"] {
        assert_eq!(round_trips(&all, function), 0, "{function}: {all}");
    }
    let all = statistics("virtual_memory", &[]);
    for function in ["cuMemAddressFree", "cuMemMap"] {
        assert_eq!(round_trips(&all, function), 0, "{function}: {all}");
    }
}

/// Round trips of 40 steps of a loop of `answers`, by function, and the bytes of pages that they
/// bring.
fn answers(kind: &str) -> (BTreeMap<String, u64>, u64) {
    let [few, many] = ["20", "60"].map(|steps| statistics("answers", &[kind, steps]));
    let names = many["functions"].as_object().expect("functions are told").keys();
    // The client's own thread asks now and then while kernels run: nobody waits for that.
    let names = names.filter(|name| *name != "(background)");
    let trips = |all: &serde_json::Value, name: &str| {
        all["functions"][name]["round_trips"].as_u64().unwrap_or(0)
    };
    let more =
        names.map(|name| (name.clone(), trips(&many, name).saturating_sub(trips(&few, name))));
    let bytes = |all: &serde_json::Value| {
        all["page_bytes_from_device"].as_u64().expect("bytes are counted")
    };
    (more.filter(|(_, trips)| *trips > 0).collect(), bytes(&many) - bytes(&few))
}

/// A kernel writes to page-locked memory, the program waits, and reads: what it reads comes with
/// the answer to the wait.
#[test]
fn what_is_read_after_a_wait_comes_with_its_answer() {
    // Whether the second kernel of `two` has written before the first one is waited for is up to
    // the device: then its page comes once more.
    for (kind, waits, late) in [
        ("number", 1, 0),
        ("lines", 1, 0),
        ("turns", 1, 0),
        ("reply", 1, 0),
        ("edges", 1, 0),
        ("two", 2, 40),
    ] {
        let (trips, bytes) = answers(kind);
        let total: u64 = trips.values().sum();
        let wanted = 40 * waits - 4..=40 * waits + 4 + late;
        assert!(
            wanted.contains(&total),
            "40 steps of `{kind}` take {total} round trips: {trips:?}"
        );
        assert!(
            bytes <= (40 * waits + late) * 4 * 4096,
            "{bytes} bytes of pages came for 40 steps of `{kind}`"
        );
    }
}

#[test]
fn what_is_read_after_a_question_comes_with_its_answer() {
    let (mut trips, _) = answers("asked");
    trips.remove("cuEventQuery");
    assert!(trips.values().sum::<u64>() <= 4, "{trips:?}");
}

/// Where the program never reads what it has read before, that stops coming along.
#[test]
fn what_comes_along_in_vain_is_given_up() {
    let (trips, bytes) = answers("fresh");
    assert!(trips.values().sum::<u64>() <= 84, "{trips:?}");
    // Four pages come for each touch.
    let touched = 40 * 4 * 4096;
    assert!(bytes < 2 * touched, "{bytes} bytes of pages came, for {touched} that were touched");
}

/// Registered memory of a file is the device's as it is: copies of it move no bytes between the
/// processes. Other memory is copied.
#[test]
fn the_pages_of_a_registered_file_are_the_devices() {
    let server = Server::start();
    let (all_of_it, little) = (32 << 20, 4 << 20);
    // A memfd, a file that has a name, one that has none any more; a private mapping of a file, the
    // program's own memory.
    for (kind, is_shared) in [("0", true), ("2", true), ("3", true), ("5", false), ("6", false)] {
        let counted =
            Program::new("registered_memory").arg(kind).sharing_memory().statistics(&server);
        let number =
            |name: &str| counted[name].as_u64().unwrap_or_else(|| panic!("no {name} in {counted}"));
        let moved = number("bytes_to_device") + number("bytes_from_device");
        let as_expected = if is_shared { moved < little } else { moved >= all_of_it };
        assert!(as_expected, "memory of kind {kind}: {moved} bytes moved");
    }
}

/// Where the kernel does not watch pages, touches of them are signals.
#[test]
fn touches_may_be_signals() {
    let server = Server::start();
    for name in ["managed_memory", "managed_streams", "managed_threads", "mapped_memory"] {
        let program = Program::new(name).env("OUTBOARD_TRANSPORT", "tcp");
        let outcomes = ["auto", "signals"].map(|how| {
            let outcome = program.clone().env("OUTBOARD_PAGE_TOUCHES", how).through(&server);
            outcome.expect_success(how);
            outcome.stdout
        });
        assert_eq!(outcomes[0], outcomes[1], "{name}");
    }
    // Decision 83 has its times.
    for how in ["auto", "signals"] {
        let program = Program::new("page_times").arg("64").env("OUTBOARD_PAGE_TOUCHES", how);
        program.through(&server).expect_success(how);
    }
}
