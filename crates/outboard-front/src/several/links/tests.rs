use std::sync::{Barrier, Mutex};
use std::thread;

use outboard_abi::CUresult;

use super::*;
use crate::backend::Recorder;
use crate::tests::servers::{Crossed, SAID};

type End = (ServerId, &'static Recorder);

/// The server at a place of the list, which reaches the others, or cannot and says why.
fn server(place: usize, reaches: std::result::Result<(), &str>) -> End {
    let recorder = Recorder::leak_apart(place as u64);
    *Crossed::of(recorder).reaches.lock() = Some(reaches.map_err(str::to_owned));
    (ServerId::new(place).expect("a list may have so many"), recorder)
}

/// What it was asked since the last time.
fn asked(server: End) -> Vec<String> {
    Crossed::of(server.1).take(0)
}

fn number(links: &Links, now: Instant, one: End, other: End) -> Option<(u32, u64)> {
    let mut told = None;
    let outcome = links.tell_at(now, one, other, Carried::Signal, |numbered| {
        told = Some((numbered.link, numbered.number));
        Ok(())
    });
    assert_eq!(outcome, told.map(|_| Ok(())));
    told
}

fn said() -> Vec<String> {
    SAID.with_borrow_mut(std::mem::take)
}

#[test]
fn the_first_of_the_list_connects_once_and_numbers_grow() {
    let (links, now) = (Links::new(), Instant::now());
    let (first, second) = (server(0, Ok(())), server(1, Ok(())));
    // Whichever of them is named first.
    for (expected, (one, other)) in
        [(second, first), (first, second), (second, first)].into_iter().enumerate()
    {
        assert_eq!(number(&links, now, one, other), Some((1, expected as u64 + 1)));
    }
    assert_eq!((asked(first), asked(second)), (vec!["link 1".into()], vec!["called 1".into()]));
    assert_eq!((links.failure(), said()), (None, Vec::new()));
}

#[test]
fn each_two_servers_have_a_link_of_their_own() {
    let (links, now) = (Links::new(), Instant::now());
    let [one, two, three] = [0, 1, 2].map(|place| server(place, Ok(())));
    assert_eq!(number(&links, now, one, two), Some((1, 1)));
    assert_eq!(number(&links, now, three, two), Some((2, 1)));
    assert_eq!(number(&links, now, one, three), Some((3, 1)));
    assert_eq!(number(&links, now, two, one), Some((1, 2)));
    assert_eq!(asked(one), ["link 1", "link 3"]);
    assert_eq!(asked(two), ["called 1", "link 2"]);
}

#[test]
fn the_later_one_connects_if_the_first_cannot() {
    let (links, now) = (Links::new(), Instant::now());
    let (first, second) = (server(0, Err("no way there")), server(1, Ok(())));
    assert_eq!(number(&links, now, first, second), Some((2, 1)));
    assert_eq!(asked(first), ["link 1", "called 2"]);
    assert_eq!(asked(second), ["called 1", "link 2"]);
    assert_eq!((links.failure(), said()), (None, Vec::new()));
}

#[test]
fn servers_that_cannot_be_linked_are_tried_again_after_ten_seconds() {
    let (links, now) = (Links::new(), Instant::now());
    let (first, second) = (server(0, Err("no way there")), server(1, Err("nor back")));
    assert_eq!(number(&links, now, first, second), None);
    let why = "no way there; the other way: nor back".to_owned();
    assert_eq!(links.failure(), Some(why.clone()));
    let told = said();
    assert!(told.len() == 1 && told[0].ends_with(&why), "{told:?}");
    assert_eq!((asked(first).len(), asked(second).len()), (2, 2), "each has tried");
    for seconds in [0.0, 9.999] {
        let now = now + Duration::from_secs_f64(seconds);
        assert_eq!(number(&links, now, second, first), None);
    }
    assert_eq!((asked(first), said()), (Vec::new(), Vec::new()), "they are left alone");
    // A second failure is said as well; a profile tells of the first.
    *Crossed::of(first.1).reaches.lock() = Some(Err("nor back".into()));
    let later = now + Duration::from_secs(10);
    assert_eq!(number(&links, later, first, second), None);
    let told = said();
    assert!(told.len() == 1 && told[0].ends_with("not linked: nor back"), "{told:?}");
    assert_eq!(links.failure(), Some(why));
    *Crossed::of(second.1).reaches.lock() = Some(Ok(()));
    assert_eq!(number(&links, later + Duration::from_secs(10), first, second), Some((6, 1)));
}

/// A server tells only after 5 s that it does not reach another one.
#[test]
fn a_program_does_not_spend_its_time_on_links_that_do_not_come_about() {
    let seconds = |seconds| until_again(Duration::from_secs(seconds)).as_secs();
    assert_eq!([0, 5, 10].map(seconds), [10, 105, 210]);
}

#[test]
fn a_link_that_either_has_lost_is_not_used_and_made_again_after_ten_seconds() {
    for loser in 0..2 {
        let (links, now) = (Links::new(), Instant::now());
        let both = [server(0, Ok(())), server(1, Ok(()))];
        assert_eq!(number(&links, now, both[0], both[1]), Some((1, 1)));
        Crossed::of(both[loser].1).lost_links.lock().push(1);
        for seconds in [0, 9] {
            let now = now + Duration::from_secs(seconds);
            assert_eq!(number(&links, now, both[0], both[1]), None);
        }
        let later = now + Duration::from_secs(10);
        assert_eq!(number(&links, later, both[0], both[1]), Some((2, 1)));
        assert_eq!(number(&links, later, both[0], both[1]), Some((2, 2)));
        assert_eq!(asked(both[0]), ["link 1", "link 2"]);
        // That they were linked before is no reason why they are not.
        assert_eq!((links.failure(), said()), (None, Vec::new()));
    }
}

#[test]
fn a_number_is_spent_even_if_telling_fails() {
    let links = Links::new();
    let (first, second) = (server(0, Ok(())), server(1, Ok(())));
    let lost = Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_eq!(links.tell(first, second, Carried::Signal, |_| lost), Some(lost));
    assert_eq!(number(&links, Instant::now(), first, second), Some((1, 2)));
}

#[test]
fn both_are_told_of_a_number_before_either_is_told_of_the_next() {
    let links = Links::new();
    let (first, second) = (server(0, Ok(())), server(1, Ok(())));
    let (start, told) = (Barrier::new(2), [Mutex::new(Vec::new()), Mutex::new(Vec::new())]);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..200 {
                    let outcome = links.tell(first, second, Carried::Signal, |numbered| {
                        told[0].lock().expect("nobody fails").push(numbered.number);
                        thread::yield_now();
                        told[1].lock().expect("nobody fails").push(numbered.number);
                        Ok(())
                    });
                    assert_eq!(outcome, Some(Ok(())));
                }
            });
        }
    });
    let all: Vec<u64> = (1..=400).collect();
    assert_eq!(told.map(|told| told.into_inner().expect("nobody fails")), [all.clone(), all]);
}

const ANY: Place = Place { flags: 1, slots: 2 };

/// Gives out a place for copies, once.
struct One(Option<Place>);

impl Places for One {
    fn take(&mut self, what: Carried) -> Option<Place> {
        if what == Carried::Signal { None } else { self.0.take() }
    }
}

#[test]
fn what_has_a_place_in_shared_memory_is_told_so_and_counted() {
    let (links, now) = (Links::new(), Instant::now());
    let (first, second) = (server(0, Ok(())), server(1, Ok(())));
    *Crossed::of(first.1).places.lock() = Some(Box::new(One(Some(ANY))));
    let queue = CopyQueue { ctx: ContextId(1), stream: StreamId(2), way: Way::ToDevice };
    let copy = |bytes| Carried::Copy(CarriedCopy { bytes, queue });
    let told: Vec<_> = [Carried::Signal, copy(7), copy(5)]
        .into_iter()
        .map(|what| {
            let mut place = None;
            let told = links.tell_at(now, first, second, what, |numbered| {
                if let Carried::Copy(copy) = what {
                    links.add_bytes(copy.bytes, numbered);
                }
                place = numbered.place;
                Ok(())
            });
            assert_eq!(told, Some(Ok(())));
            place
        })
        .collect();
    assert_eq!(told, [None, Some(ANY), None]);
    assert_eq!((links.bytes(), links.shared_bytes()), (12, 7));
}
