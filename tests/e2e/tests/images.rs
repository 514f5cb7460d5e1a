//! Images that the server keeps: what one run has sent, no later one sends.

use std::fs;
use std::path::PathBuf;

use outboard_e2e::{Driver, Folder, Program, Server, inside_folders_of};

/// A server that keeps its images in this folder.
fn serve(folder: &Folder, more: &[&str]) -> Server {
    let images = folder.path("images");
    let args = [&["--driver", Driver::chosen().name(), "--image-cache", &images], more].concat();
    Server::start_with(&args, &[])
}

/// The files of kept images.
fn images(folder: &Folder) -> Vec<PathBuf> {
    inside_folders_of(&folder.join("images"))
}

/// Images that a run sent, their bytes, and images that the server had.
fn run(server: &Server) -> (u64, u64, u64) {
    let counted = Program::new("histogram").statistics(server);
    let count = |name: &str| {
        counted[name].as_u64().unwrap_or_else(|| panic!("{name} is counted: {counted}"))
    };
    (count("images_sent"), count("image_bytes_sent"), count("images_known"))
}

#[test]
fn a_second_run_sends_no_image() {
    let folder = Folder::create();
    let server = serve(&folder, &[]);
    let (sent, bytes, known) = run(&server);
    assert!(sent > 0 && bytes > 0 && known == 0, "{sent} {bytes} {known}");
    assert_eq!(run(&server), (0, 0, sent));
    drop(server);
    let server = serve(&folder, &["--warm", "1"]);
    assert_eq!(run(&server), (0, 0, sent), "another server, the same folder");
}

#[test]
fn nothing_is_kept_where_that_is_off() {
    let server =
        Server::start_with(&["--driver", Driver::chosen().name(), "--image-cache", "off"], &[]);
    let first = run(&server);
    assert!(first.0 > 0 && first.2 == 0, "{first:?}");
    assert_eq!(run(&server), first);
}

#[test]
fn damaged_images_are_sent_again() {
    let folder = Folder::create();
    let server = serve(&folder, &[]);
    let first = run(&server);
    let images = images(&folder);
    assert!(!images.is_empty());
    for image in &images {
        let mut bytes = fs::read(image).expect("an image is a file");
        bytes[0] ^= 1;
        fs::write(image, bytes).expect("an image can be written");
    }
    assert_eq!(run(&server), first);
    server.expect_logged("damaged");
    assert_eq!(run(&server), (0, 0, first.0));
}

#[test]
fn images_beyond_the_limit_are_sent_again() {
    let folder = Folder::create();
    let server = serve(&folder, &["--image-cache-limit", "16"]);
    let first = run(&server);
    assert_eq!(run(&server), first);
    assert_eq!(images(&folder), Vec::<PathBuf>::new());
}

#[test]
fn a_folder_that_cannot_be_used_costs_no_session() {
    let folder = Folder::create();
    folder.write("images", "in the way");
    let server = serve(&folder, &[]);
    let (sent, _, known) = run(&server);
    assert!(sent > 0 && known == 0);
    let complaints =
        server.log().lines().filter(|line| line.contains("images are not kept")).count();
    assert_eq!(complaints, 1, "{}", server.log());
}
