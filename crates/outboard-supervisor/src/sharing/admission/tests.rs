use super::*;

fn policy(modes: &str) -> Policy {
    Policy { modes: modes.parse().unwrap(), sessions: 100, memory: None, promises: true, queue: 10 }
}

fn request(owner: &str, devices: &[u32]) -> Request {
    Request {
        holder: owner.into(),
        owner: owner.into(),
        owner_sessions: None,
        devices: devices.into(),
        memory: 0,
        exclusive: Vec::new(),
        client: format!("{owner}'s program"),
    }
}

/// Why somebody is turned away after a moment.
fn turned_away(
    door: &mut Admission,
    request: Request,
    may_wait: bool,
    now: Timestamp,
) -> Option<Refusal> {
    let Come { number, unless_soon } = door.come(request, may_wait, now).ok()?;
    if unless_soon.is_some() {
        assert_ne!(door.look(number, now), Verdict::In);
        door.leave(number);
    }
    unless_soon
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn it_is_known_who_has_an_exclusive_device_and_since_when() {
    let mut door = Admission::new(policy("shared,1=exclusive"));
    let first = door.come(request("a", &[1]), true, at(60)).unwrap().number;
    let second = door.come(request("a", &[]), true, at(120)).unwrap().number;
    door.come(request("b", &[0]), true, at(130)).unwrap();
    door.leave(first);
    let held = |door: &Admission| -> Vec<(u32, String, i64)> {
        door.holders(4)
            .into_iter()
            .map(|held| (held.device, held.holder, held.since.as_second()))
            .collect()
    };
    assert_eq!(
        held(&door),
        [(1, "a".to_owned(), 60)],
        "it was never anybody else's; device 0 is for everybody"
    );
    let refused = turned_away(&mut door, request("c", &[1]), false, at(180)).unwrap();
    assert!(
        refused.sentence.contains("another one has had it since 1970-01-01 00:01 UTC"),
        "{}",
        refused.sentence
    );
    let waits = door.come(request("c", &[1]), true, at(180)).unwrap().number;
    door.leave(second);
    assert_eq!(
        (door.look(waits, at(240)), held(&door)),
        (Verdict::In, vec![(1, "c".to_owned(), 240)])
    );
}

#[allow(clippy::needless_pass_by_value, reason = "a verdict just made")]
fn place(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::In => 0,
        Verdict::Waits { place, .. } => place,
    }
}

#[test]
fn an_exclusive_device_goes_from_owner_to_owner_in_order() {
    let mut door = Admission::new(policy("shared,0=exclusive"));
    let first = door.come(request("a", &[0]), true, at(0)).unwrap().number;
    let own = door.come(request("a", &[]), true, at(0)).unwrap().number;
    assert_eq!(
        (door.look(first, at(0)), door.look(own, at(0))),
        (Verdict::In, Verdict::In),
        "one owner, two programs"
    );
    let second = door.come(request("b", &[0]), true, at(0)).unwrap().number;
    let third = door.come(request("c", &[]), true, at(0)).unwrap().number;
    let elsewhere = door.come(request("c", &[1]), true, at(0)).unwrap().number;
    assert_eq!(
        [second, third, elsewhere].map(|one| place(door.look(one, at(0)))),
        [1, 2, 0],
        "device 1 is free"
    );
    let again = door.come(request("a", &[0]), true, at(0)).unwrap().number;
    assert_eq!(place(door.look(again, at(0))), 0, "a process of the one who has it");
    door.leave(first);
    door.leave(again);
    assert_eq!(place(door.look(second, at(0))), 1, "another session of the owner is there");
    door.leave(own);
    // Nobody has it now, and so it is the turn of who came first.
    let again = door.come(request("a", &[0]), true, at(0)).unwrap().number;
    assert_eq!([again, third, second].map(|one| place(door.look(one, at(0)))), [3, 2, 0]);
    door.leave(second);
    assert_eq!([again, third].map(|one| place(door.look(one, at(0)))), [2, 0]);
    door.leave(third);
    assert_eq!(place(door.look(again, at(0))), 0);
    assert_eq!(door.waiting(), 0);
}

#[test]
fn who_is_at_the_owners_limit_keeps_nobody_else_out() {
    let mut door = Admission::new(Policy { sessions: 3, ..policy("shared") });
    let two = |owner| Request { owner_sessions: Some(2), ..request(owner, &[]) };
    let first = door.come(two("a"), true, at(0)).unwrap().number;
    door.come(two("a"), true, at(0)).unwrap();
    let third = door.come(two("a"), true, at(0)).unwrap().number;
    match door.look(third, at(0)) {
        Verdict::Waits { sentence, .. } => {
            assert!(sentence.contains("a's program, a's program"), "{sentence}")
        }
        Verdict::In => panic!("three sessions of an owner that may have two"),
    }
    let other = door.come(two("b"), true, at(0)).unwrap().number;
    assert_eq!(place(door.look(other, at(0))), 0);
    let refused = turned_away(&mut door, two("a"), false, at(0)).unwrap();
    assert_eq!(refused.code, RefusalCode::OverLimit);
    let refused = turned_away(&mut door, two("c"), false, at(0)).unwrap();
    assert!(
        refused.code == RefusalCode::Busy && !refused.sentence.contains("program"),
        "{}",
        refused.sentence
    );
    door.leave(first);
    assert_eq!(place(door.look(third, at(0))), 0);
}

#[test]
fn memory_is_promised_by_device_and_large_requests_are_not_overtaken() {
    let mut door = Admission::new(Policy { memory: Some(100), ..policy("shared") });
    let asks = |memory, devices: &[u32]| Request { memory, ..request("a", devices) };
    let first = door.come(asks(60, &[0]), true, at(0)).unwrap().number;
    let large = door.come(asks(80, &[0]), true, at(0)).unwrap().number;
    let small = door.come(asks(10, &[0]), true, at(0)).unwrap().number;
    let other = door.come(asks(100, &[1]), true, at(0)).unwrap().number;
    assert_eq!([first, large, small, other].map(|one| place(door.look(one, at(0)))), [0, 1, 2, 0]);
    door.leave(first);
    assert_eq!([large, small].map(|one| place(door.look(one, at(0)))), [0, 0]);
    let everywhere = door.come(asks(1, &[]), true, at(0)).unwrap().number;
    assert!(place(door.look(everywhere, at(0))) > 0, "device 1 is full");
    assert!(turned_away(&mut door, asks(101, &[2]), false, at(0)).is_some());
}

#[test]
fn who_was_let_in_by_an_earlier_server_counts() {
    let mut door = Admission::new(policy("exclusive"));
    let there = door.go_on(request("a", &[0]), at(0));
    assert_eq!(door.request(there).map(|request| request.owner.as_str()), Some("a"));
    let next = door.come(request("b", &[0]), true, at(0)).unwrap().number;
    assert_eq!(place(door.look(next, at(0))), 1);
    door.leave(there);
    assert_eq!(place(door.look(next, at(0))), 0);
    let noted = serde_json::to_string(&request("a", &[3])).unwrap();
    assert_eq!(serde_json::from_str::<Request>(&noted).unwrap(), request("a", &[3]));
}

#[test]
fn the_queue_has_an_end() {
    let mut door = Admission::new(Policy { queue: 1, ..policy("exclusive") });
    door.come(request("a", &[]), true, at(0)).unwrap();
    let waits = door.come(request("b", &[]), true, at(0)).unwrap().number;
    assert!(
        turned_away(&mut door, request("c", &[]), true, at(0))
            .unwrap()
            .sentence
            .contains("queue is full")
    );
    door.leave(waits);
    assert_eq!(turned_away(&mut door, request("c", &[]), true, at(0)), None);
}

#[test]
fn a_device_that_somebody_has_alone_is_for_nobody_else_meanwhile() {
    let mut door = Admission::new(policy("shared"));
    let alone =
        |owner: &str, device: u32| Request { exclusive: vec![device], ..request(owner, &[device]) };
    let shared = door.come(request("a", &[1]), true, at(10)).unwrap().number;
    let first = door.come(alone("b", 1), true, at(20)).unwrap().number;
    assert!(matches!(door.look(first, at(20)), Verdict::Waits { place: 1, .. }), "it is in use");
    door.leave(shared);
    assert_eq!(door.look(first, at(30)), Verdict::In);
    let again = door.come(alone("b", 1), true, at(40)).unwrap().number;
    assert_eq!(door.look(again, at(40)), Verdict::In, "the same holder's");
    for other in [request("a", &[1]), request("a", &[]), alone("a", 1)] {
        assert!(turned_away(&mut door, other, false, at(50)).is_some());
    }
    assert_eq!(turned_away(&mut door, request("a", &[0]), false, at(50)), None, "another device");
    assert_eq!(door.holders(2).len(), 1);
    door.leave(first);
    door.leave(again);
    assert_eq!(turned_away(&mut door, request("a", &[1]), false, at(60)), None);
}

#[test]
fn who_leaves_makes_room_for_those_who_have_no_place_in_the_queue() {
    let mut door = Admission::new(Policy { sessions: 1, queue: 0, ..policy("shared") });
    let first = door.come(request("a", &[]), true, at(0)).unwrap().number;
    let next = door.come(request("b", &[]), false, at(0)).unwrap();
    assert!(next.unless_soon.is_some());
    assert_eq!(door.waiting(), 0, "it is not in the queue");
    door.leave(first);
    assert_eq!(door.look(next.number, at(1)), Verdict::In);
    // However many come, few of them wait for that.
    let come =
        |door: &mut Admission| door.come(request("c", &[]), false, at(2)).map(|come| come.number);
    let waits: Vec<u64> = (0..MOST_PASSING).map(|_| come(&mut door).unwrap()).collect();
    assert_eq!(come(&mut door).unwrap_err().code, RefusalCode::Busy);
    door.leave(waits[0]);
    assert!(come(&mut door).is_ok());
}
