//! What a server reads of a client that names a file, and what the client reads of the server's
//! question: a line with a source, a path that ends with a zero, and blocks.
#![no_main]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use outboard_files::{Access, Block, Challenge, Identity, Opener, Request, Share, Terms, answer};

/// A folder that is shared, with files in and links out of it.
struct Place {
    folder: PathBuf,
    /// The identities of a file inside and of one outside.
    identities: [Identity; 2],
    inside: File,
    opener: Opener,
}

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let all = std::env::temp_dir().join(format!("outboard-fuzz-files-{}", std::process::id()));
    let folder = all.join("shared");
    fs::create_dir_all(folder.join("in/deep")).expect("a folder");
    let (inside, outside) = (folder.join("in/file"), all.join("out"));
    for file in [&inside, &folder.join("in/deep/file"), &outside] {
        fs::write(file, vec![7; 10_000]).expect("a file");
    }
    for (link, target) in [("link", "../out"), ("in/up", "../.."), ("in/deep/same", "../file")] {
        std::os::unix::fs::symlink(target, folder.join(link)).expect("a link");
    }
    let folder = fs::canonicalize(folder).expect("it is there");
    let of = |file: PathBuf| {
        let file = File::open(file).expect("it opens");
        (Identity::of(&file).expect("it has one"), file)
    };
    let ((outside, _), (known, inside)) = (of(outside), of(inside));
    let terms = Terms { folder: folder.clone(), ..Terms::default() };
    let share = |source| Share::new(source, terms.clone()).expect("a share");
    let opener = Opener::new(vec![share("s"), share("s/in")], Duration::from_secs(10));
    Place { folder, identities: [known, outside], inside, opener: opener.expect("they open") }
});

fuzz_target!(|bytes: &[u8]| {
    let place = &*PLACE;
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let (source, rest) = (String::from_utf8_lossy(&bytes[..end]), &bytes[end + 1..]);
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let (path, rest) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());

    for identity in place.identities {
        let request =
            Request { owner: "ada", source: &source, path, identity, access: Access::Read };
        let Ok(opened) = place.opener.open(&request) else { continue };
        let challenge = opened.challenge().expect("who reads is asked").clone();
        let shown = answer(&place.inside, &challenge).expect("as long as the file");
        let checked = place.opener.check(opened, Some(shown)).expect("it is the file");
        let link = format!("/proc/self/fd/{}", checked.file.as_raw_fd());
        let opened = fs::read_link(link).expect("it is open");
        assert!(opened.starts_with(&place.folder), "{}", opened.display());
    }

    let block = |bytes: &[u8]| {
        let (offset, bytes) = bytes.split_at(8);
        let offset = u64::from_le_bytes(offset.try_into().expect("eight bytes"));
        Block { offset, bytes: u32::from_le_bytes(bytes.try_into().expect("four bytes")) }
    };
    let blocks = rest.chunks_exact(12).map(block).collect();
    if let Ok(challenge) = Challenge::from_parts([3; 32], blocks) {
        let end = 10_000;
        let fits = |block: &Block| block.offset + u64::from(block.bytes) <= end;
        let all = challenge.blocks().iter().all(fits);
        assert_eq!(answer(&place.inside, &challenge).is_ok(), all);
    }
});
