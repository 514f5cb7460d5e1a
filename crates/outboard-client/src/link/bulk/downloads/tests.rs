use proptest::prelude::*;

use super::*;

const CHUNK: u32 = 64 << 10;

/// Copies what its place has become free for, as a lane's thread does.
fn place(downloads: &mut Downloads) {
    loop {
        let free = downloads.take_free();
        if free.is_empty() {
            return;
        }
        for Early { transfer, index, to, bytes } in free {
            // SAFETY: the memory of the test's downloads.
            unsafe { to.write(&bytes) };
            downloads.end_chunk(transfer, index, true);
        }
    }
}

/// A chunk comes whole; `false` if there is no room for it yet.
fn come(downloads: &mut Downloads, transfer: u64, index: u32, value: u8) -> bool {
    let bytes = vec![value; CHUNK as usize];
    match downloads.begin_chunk(transfer, index, CHUNK).unwrap().unwrap() {
        None => return false,
        Some(Room::Here(to)) => {
            // SAFETY: as above.
            unsafe { to.write(&bytes) };
            downloads.end_chunk(transfer, index, true);
        }
        Some(Room::Aside) => assert!(downloads.put_aside(transfer, index, bytes).is_none()),
    }
    place(downloads);
    true
}

fn open(
    downloads: &mut Downloads,
    number: u64,
    memory: &mut [u8],
    behind: Vec<u64>,
) -> Arc<Outcome> {
    let outcome = Arc::default();
    let cut = Cut::new(memory.len() as u64, CHUNK).unwrap();
    downloads.open(number, cut, HostBytes::from(memory.as_mut_ptr()), behind, &outcome);
    outcome
}

proptest! {
    /// In whatever order the chunks of downloads to the same memory come, it holds the last one's
    /// bytes once that has ended, and they end in order.
    #[test]
    fn the_last_download_stays(
        (count, chunks) in (1u64..6, 1u32..5),
        order in proptest::collection::vec(any::<u16>(), 30),
    ) {
        let mut memory = vec![0u8; (chunks * CHUNK) as usize];
        let mut downloads = Downloads::default();
        let outcomes: Vec<_> =
            (1..=count).map(|number| open(&mut downloads, number, &mut memory, (1..number).collect())).collect();
        let mut left: Vec<(u64, u32)> = (1..=count).flat_map(|n| (0..chunks).map(move |index| (n, index))).collect();
        for turn in 0.. {
            if left.is_empty() {
                break;
            }
            let (number, index) = left.remove(usize::from(order[turn % order.len()]) % left.len());
            prop_assert!(come(&mut downloads, number, index, number as u8));
            let ended: Vec<bool> = outcomes.iter().map(|outcome| outcome.get().is_some()).collect();
            prop_assert!(ended.is_sorted_by(|earlier, later| *earlier || !*later), "{:?}", ended);
        }
        prop_assert!(outcomes.iter().all(|outcome| outcome.get() == Some(End::Complete)));
        prop_assert!(memory.iter().all(|byte| *byte == count as u8));
        prop_assert_eq!((downloads.is_any(), downloads.aside), (false, 0));
    }
}

#[test]
fn only_so_much_is_put_aside() {
    let most = (MOST_ASIDE / CHUNK as usize) as u32;
    let mut memory = vec![0u8; MOST_ASIDE + CHUNK as usize];
    let (first, later) = memory.split_at_mut(CHUNK as usize);
    let mut downloads = Downloads::default();
    // That they lie in one memory only the caller knows.
    let earlier = open(&mut downloads, 1, first, Vec::new());
    let mut more = vec![0u8; CHUNK as usize];
    let outcome = open(&mut downloads, 2, later, vec![1]);
    open(&mut downloads, 3, &mut more, vec![1]);
    for index in 0..most {
        assert!(come(&mut downloads, 2, index, 2));
    }
    assert!(!come(&mut downloads, 3, 0, 3));
    assert_eq!((earlier.get(), outcome.get()), (None, None));
    assert!(come(&mut downloads, 1, 0, 1));
    assert_eq!((earlier.get(), outcome.get()), (Some(End::Complete), Some(End::Complete)));
    assert!(come(&mut downloads, 3, 0, 3));
}

#[test]
fn what_was_put_aside_is_placed_behind_a_download_that_was_given_up() {
    let mut memory = vec![0u8; CHUNK as usize];
    let mut downloads = Downloads::default();
    let given_up = open(&mut downloads, 1, &mut memory, Vec::new());
    let outcome = open(&mut downloads, 2, &mut memory, vec![1]);
    assert!(come(&mut downloads, 2, 0, 7));
    downloads.cancel(1, 0);
    place(&mut downloads);
    assert_eq!((given_up.get(), outcome.get()), (Some(End::Cancelled), Some(End::Complete)));
    assert!(memory.iter().all(|byte| *byte == 7));
}

#[test]
fn what_was_put_aside_is_lost_with_the_link() {
    let mut memory = vec![0u8; CHUNK as usize];
    let mut downloads = Downloads::default();
    open(&mut downloads, 1, &mut memory, Vec::new());
    let outcome = open(&mut downloads, 2, &mut memory, vec![1]);
    assert!(come(&mut downloads, 2, 0, 7));
    downloads.lose();
    assert_eq!((outcome.get(), downloads.is_any()), (Some(End::Lost), false));
    assert!(memory.iter().all(|byte| *byte == 0));
}

#[test]
fn a_chunk_whose_place_became_free_while_it_was_read_is_placed_by_its_reader() {
    let mut memory = vec![0u8; CHUNK as usize];
    let mut downloads = Downloads::default();
    open(&mut downloads, 1, &mut memory, Vec::new());
    let outcome = open(&mut downloads, 2, &mut memory, vec![1]);
    assert!(matches!(downloads.begin_chunk(2, 0, CHUNK), Some(Ok(Some(Room::Aside)))));
    assert!(come(&mut downloads, 1, 0, 1));
    let early = downloads.put_aside(2, 0, vec![2; CHUNK as usize]).unwrap();
    // SAFETY: as above.
    unsafe { early.to.write(&early.bytes) };
    assert!(downloads.end_chunk(early.transfer, early.index, true));
    assert_eq!(outcome.get(), Some(End::Complete));
    assert!(memory.iter().all(|byte| *byte == 2));
}

/// What an adapter has written counts as what came on a lane, once, and only where memory is lent.
#[test]
fn chunks_that_were_written_count_where_memory_is_lent() {
    let mut memory = vec![0_u8; 3 * CHUNK as usize];
    let mut downloads = Downloads::default();
    let outcome = open(&mut downloads, 1, &mut memory, Vec::new());
    assert!(downloads.written(1, 0, CHUNK).is_none(), "no memory is lent");
    downloads.lend(1);
    assert!(downloads.written(2, 0, CHUNK).is_none(), "there is no such download");
    assert!(!downloads.written(1, 0, CHUNK).unwrap().unwrap());
    assert!(downloads.written(1, 0, CHUNK).unwrap().is_err(), "it has come");
    assert!(downloads.written(1, 1, CHUNK - 1).unwrap().is_err(), "it is not all of it");
    assert!(downloads.written(1, 3, CHUNK).unwrap().is_err(), "there is no such chunk");
    assert!(come(&mut downloads, 1, 2, 7), "others come on lanes");
    assert_eq!((outcome.get(), downloads.written(1, 1, CHUNK).unwrap().unwrap()), (None, true));
    assert_eq!(outcome.get(), Some(End::Complete));
    assert!(downloads.written(1, 1, CHUNK).is_none(), "it has ended");
}
