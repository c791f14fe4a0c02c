//! Strangers before a login: what they send costs little, takes no room from users, and each refusal has a reason.

use seawall_testkit::kafka_wire::{ApiVersionsRequest, ProduceRequest};
use seawall_testkit::raw::encode_frame;
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{BatchBuilder, Raw, calls, metrics, requests};

use super::codes;
use super::hostile_load::closed;
use super::logins::{ALICE, Guarded, handshake};
use super::sasl::log_in;

const MIB_IN_KIB: u64 = 1024;

/// Somebody logs in and asks for what needs a login.
fn a_user_is_served(guarded: &Guarded) -> Raw {
    let mut raw = guarded.connect();
    let answer = log_in(&mut raw, "PLAIN", ALICE);
    assert_eq!(answer.error_code, codes::NONE);
    assert!(super::logins::may_ask_for_metadata(&mut raw));
    raw
}

#[test]
fn a_storm_of_questions_before_login_is_bounded_and_users_do_not_notice() {
    const STRANGERS: u64 = 100;
    let guarded = Guarded::start(&[]);
    a_user_is_served(&guarded);
    let mut one = encode_frame(3, 1, &ApiVersionsRequest::default()).to_vec();
    one = one.repeat(10_000);
    let before = guarded.broker.proc_status("VmRSS");
    let mut storm: Vec<Raw> = (0..STRANGERS).map(|_| guarded.connect()).collect();
    let senders: Vec<_> = storm
        .iter_mut()
        .map(|raw| {
            let (mut raw, bytes) = (raw.second_handle(), one.clone());
            // It ends when all is taken, or with the connection.
            std::thread::spawn(move || raw.send_bytes(&bytes))
        })
        .collect();
    for _ in 0..20 {
        a_user_is_served(&guarded);
    }
    let grown = guarded.broker.proc_status("VmRSS").saturating_sub(before);
    println!("{STRANGERS} strangers with a storm of questions: {grown} KiB");
    // Half a megabyte each; all of their answers would be ten times as much.
    assert!(grown < STRANGERS * MIB_IN_KIB / 2, "{grown} KiB");
    for raw in &storm {
        raw.stream().shutdown(std::net::Shutdown::Both).ok();
    }
    for sender in senders {
        sender.join().expect("its end");
    }
    a_user_is_served(&guarded);
}

#[test]
fn what_strangers_claim_takes_no_room_from_users() {
    // Room for eight frames of strangers, if it were theirs.
    let guarded = Guarded::start(&[("queued.max.request.bytes", "4194304")]);
    let mut user = a_user_is_served(&guarded);
    let topic = calls::create_topic(&mut guarded.broker.connect(), "of-users", 1, &[]);
    let mut strangers: Vec<Raw> = (0..16).map(|_| guarded.begun("PLAIN")).collect();
    for raw in &mut strangers {
        raw.send_bytes(&(512 * 1024_i32).to_be_bytes());
        raw.send_bytes(&[36; 64 * 1024]);
    }
    wait::until("strangers wait for room", SOON, || {
        let page = metrics::scrape(guarded.broker.admin());
        metrics::value(&page, "seawall_frames_waiting").is_some_and(|waiting| waiting > 0.0)
    });
    let value = "x".repeat(900_000);
    let batch = BatchBuilder::of(&[value.as_str()]).build();
    let request = requests::produce(calls::PRODUCE, &topic, -1, vec![(0, Some(batch))]);
    let answer = user.call::<ProduceRequest>(calls::PRODUCE, &request);
    let row = &answer.responses[0].partition_responses[0];
    assert_eq!(row.error_code, codes::NONE);
    // Had the frame had to wait for theirs, some of them were gone.
    assert_eq!(closed(&guarded.broker, "frame_deadline"), 0.0);
    drop(strangers);
    a_user_is_served(&guarded);
}

#[test]
fn a_stranger_claims_no_frame_of_a_user_and_that_is_counted() {
    let guarded = Guarded::start(&[]);
    for (round, length) in [512 * 1024 + 1, 100 << 20, i32::MAX]
        .into_iter()
        .enumerate()
    {
        for begun in [false, true] {
            let mut raw = guarded.connect();
            if begun {
                handshake(&mut raw, "SCRAM-SHA-256");
            }
            raw.send_bytes(&length.to_be_bytes());
            raw.expect_closed("a frame above the limit before login");
        }
        let counted = f64::from(u8::try_from(2 * (round + 1)).expect("few"));
        wait::until("it is counted", SOON, || {
            closed(&guarded.broker, "frame_too_long") >= counted
        });
    }
    a_user_is_served(&guarded);
}

#[test]
fn a_login_that_never_ends_is_ended_and_each_refusal_is_counted() {
    let guarded = Guarded::start(&[("connection.failed.authentication.delay.ms", "0")]);
    let failed = |guarded: &Guarded| -> f64 {
        let page = metrics::scrape(guarded.broker.admin());
        let lines = page
            .lines()
            .filter(|line| line.starts_with("seawall_logins_failed_total"));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    let before = failed(&guarded);
    let (mut ended, endless) = (0, super::logins::Scram::new("SCRAM-SHA-256", ALICE).first());
    for _ in 0..10 {
        let mut raw = guarded.begun("SCRAM-SHA-256");
        // First messages, and never a proof.
        for _ in 0..100 {
            let mut request = seawall_testkit::kafka_wire::SaslAuthenticateRequest::default();
            request.auth_bytes = endless.clone().into();
            raw.send(2, &request);
            if raw.read_frame().is_none() {
                ended += 1;
                break;
            }
        }
    }
    assert_eq!(ended, 10, "a login takes no more than two tokens");
    wait::until("each is counted", SOON, || {
        failed(&guarded) >= before + 10.0
    });
    // A token as long as a stranger may send.
    let mut raw = guarded.begun("PLAIN");
    let answer = super::logins::token(&mut raw, &vec![b'a'; 500_000]);
    assert_eq!(answer.error_code, codes::SASL_AUTHENTICATION_FAILED);
    wait::until("it is counted", SOON, || failed(&guarded) >= before + 11.0);
    a_user_is_served(&guarded);
}
