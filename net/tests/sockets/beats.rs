//! The pulse of the event loops.

use crate::support::{Client, EXCLUSIVE, eventually, start};

#[test]
fn a_loop_that_is_stuck_gives_no_beat_and_the_others_do() {
    let (toy, server) = start();
    let watch = server.watch();
    for _ in 0..3 {
        watch.ask_for_beats();
        eventually("idle loops beat when asked", || watch.silent() == 0);
    }
    let stuck = toy.started.lock();
    let mut client = Client::connect(&server);
    client.send(EXCLUSIVE, 1, b"e");
    eventually("a request is in its handler", || {
        toy.headers.lock().len() == 1
    });
    watch.ask_for_beats();
    eventually("the other loop beats", || watch.silent() == 1);
    watch.ask_for_beats();
    eventually("and beats again", || watch.silent() == 1);
    drop(stuck);
    eventually("it goes on", || watch.silent() == 0);
    client.reply();
}
