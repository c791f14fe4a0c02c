//! What the side door says while disks hang: it never waits for any of them.

use std::fs;
use std::process::{Command, Stdio};

use seawall_faultfs::{Call, Fault, FaultFs, Standing};
use seawall_testkit::calls::create_topic;
use seawall_testkit::kafka_wire::{CreateAclsRequest, DescribeAclsRequest, create_acls_request};
use seawall_testkit::manager::Manager;
use seawall_testkit::metrics::{Answer, get, scrape, value};
use seawall_testkit::wait::{self, SOON};
use seawall_testkit::{Broker, Raw, tempfile};
use serde_json::Value;

use super::writer::Writer;
use crate::{DATA, codes, mounted, place, setup, setup_on};

const EVERY_CALL: [Call; 7] = [
    Call::Sync,
    Call::SyncDir,
    Call::Write,
    Call::Create,
    Call::Rename,
    Call::Read,
    Call::StatFs,
];

fn hang_everything(fs: &FaultFs) -> Vec<Standing> {
    let all = EVERY_CALL.iter();
    all.map(|call| fs.order(*call, "", Fault::Hang)).collect()
}

fn page(broker: &Broker, path: &str) -> Answer {
    get(broker.admin(), path, "*/*").expect("the side door answers")
}

fn health(broker: &Broker) -> Value {
    serde_json::from_str(&page(broker, "/healthz").body).expect("JSON")
}

#[test]
fn health_and_metrics_are_told_while_every_volume_hangs() {
    let (fs, broker) = mounted(|setup| setup.set("log.flush.stall.timeout.ms", "500"));
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "hung", 2, &[]);
    let writers = [0, 1].map(|partition| Writer::new(&mut raw, &topic, partition));
    for writer in &writers {
        assert_eq!(writer.produce(&mut raw, 0), (codes::NONE, 0));
    }
    let hangs = hang_everything(&fs);
    for writer in &writers {
        let refused = writer.produce(&mut broker.connect(), 1).0;
        assert_eq!(refused, codes::KAFKA_STORAGE_ERROR);
    }
    let told = health(&broker);
    assert_eq!(told["status"], "degraded", "{told}");
    assert_eq!(told["partitions"]["stalled"], 2, "{told}");
    let rows = told["unwell"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{told}");
    for row in rows {
        assert_eq!(row["topic"], "hung");
        assert_eq!(row["state"], "stalled");
        let reason = row["reason"].as_str().expect("a reason");
        assert!(reason.contains("log.flush.stall.timeout.ms"), "{reason}");
        assert_eq!(row["logDir"], *fs.path(DATA).to_string_lossy());
    }
    assert_eq!(told["logDirs"][0]["state"], "unwell", "{told}");
    assert_eq!(
        page(&broker, "/readyz").status,
        200,
        "its reasons are known"
    );
    let metrics = scrape(broker.admin());
    assert_eq!(
        value(&metrics, "seawall_partitions{state=\"stalled\"}"),
        Some(2.0)
    );
    let age = "seawall_calls_in_flight_age_seconds";
    assert!(value(&metrics, age) > Some(0.5), "{metrics}");
    assert_eq!(
        value(&metrics, "seawall_refusals_total{reason=\"stalled\"}"),
        Some(2.0)
    );
    drop(hangs);
    wait::until("all is well again", SOON, || {
        health(&broker)["status"] == "ok"
    });
    assert!(value(&scrape(broker.admin()), age) < value(&metrics, age));
}

fn rule(topic: &str) -> CreateAclsRequest {
    let mut rule = create_acls_request::AclCreation::default();
    rule.resource_type = 2;
    rule.resource_pattern_type = 3;
    rule.resource_name = topic.into();
    rule.principal = "User:*".into();
    rule.host = "*".into();
    rule.operation = 3;
    rule.permission_type = 3;
    let mut request = CreateAclsRequest::default();
    request.creations = vec![rule];
    request
}

/// How many rules there are, as a client is told.
fn rules(raw: &mut Raw) -> usize {
    let mut request = DescribeAclsRequest::default();
    request.resource_type_filter = 1;
    request.pattern_type_filter = 1;
    request.resource_name_filter = None;
    request.principal_filter = None;
    request.host_filter = None;
    request.operation = 1;
    request.permission_type = 1;
    let answer = raw.call::<DescribeAclsRequest>(3, &request);
    assert_eq!(answer.error_code, codes::NONE);
    answer.resources.len()
}

#[test]
fn rules_are_listed_counted_and_asked_while_a_change_of_them_hangs() {
    let class = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    let (fs, broker) = mounted(|setup| {
        setup
            .set("authorizer.class.name", class)
            .set("super.users", "User:ANONYMOUS")
            .set("num.network.threads", "1")
    });
    let mut changes = broker.connect();
    let added = changes.call::<CreateAclsRequest>(3, &rule("one"));
    assert_eq!(added.results[0].error_code, codes::NONE);
    let hang = fs.order(Call::Rename, "", Fault::Hang);
    let waiting = changes.send::<CreateAclsRequest>(3, &rule("two"));
    hang.wait_for_hits(1, SOON);
    // The only event loop and the side door.
    let mut raw = broker.connect();
    assert_eq!(rules(&mut raw), 1, "what is not durable does not hold");
    assert_eq!(page(&broker, "/healthz").status, 200);
    let counted = value(&scrape(broker.admin()), "seawall_acl_rules");
    assert_eq!(counted, Some(1.0));
    hang.lift();
    let added = changes.receive::<CreateAclsRequest>(3, waiting);
    assert_eq!(added.results[0].error_code, codes::NONE);
    assert_eq!(rules(&mut raw), 2);
}

#[test]
fn a_start_that_hangs_is_told_and_gets_no_ready() {
    let fs = FaultFs::mount(1);
    let manager = Manager::new();
    let mut broker;
    // The last one is dropped first: a broker that hangs does not end.
    let hangs = hang_everything(&fs);
    broker = manager.of(setup_on(&fs)).launch();
    wait::until("the side door answers", SOON, || {
        get(broker.admin(), "/readyz", "*/*").is_ok()
    });
    let ready = page(&broker, "/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.starts_with("starting"), "{}", ready.body);
    let told = health(&broker);
    assert_eq!(told["status"], "starting");
    assert_eq!(told["phase"], "claiming");
    assert_eq!(
        value(&scrape(broker.admin()), "seawall_starting"),
        Some(1.0)
    );
    drop(hangs);
    broker.wait_until_it_answers();
    let (_, before) = manager.hears("READY=1");
    assert!(!before.iter().any(|line| line == "WATCHDOG=1"));
    assert_eq!(page(&broker, "/readyz").status, 200);
}

/// A broker that was killed with a log to recover, on a mount where reading that log hangs.
fn recovering(manager: &Manager) -> (FaultFs, Broker, Standing) {
    let fs = FaultFs::mount(1);
    let mut broker = manager.of(setup_on(&fs)).start();
    let mut raw = broker.connect();
    let topic = create_topic(&mut raw, "hung", 1, &[]);
    create_topic(&mut raw, "other", 2, &[]);
    let writer = Writer::new(&mut raw, &topic, 0);
    for sequence in 0..10 {
        let offset = i64::from(sequence);
        assert_eq!(writer.produce(&mut raw, sequence), (codes::NONE, offset));
    }
    drop(raw);
    broker.kill9();
    let (_, _) = manager.hears("READY=1");
    let hang = fs.order(Call::Read, &place("hung", 0), Fault::Hang);
    (fs, broker, hang)
}

#[test]
fn recovery_is_told_while_it_runs_and_ready_only_when_it_is_over() {
    let manager = Manager::new();
    let (_fs, mut broker, hang) = recovering(&manager);
    broker.launch_again();
    hang.wait_for_hits(1, SOON);
    wait::until("the others are open", SOON, || {
        let told = page(&broker, "/readyz");
        assert_eq!(told.status, 503);
        told.body.starts_with("starting: 2 of 3 partitions open")
    });
    assert_eq!(health(&broker)["recovery"]["opened"], 2);
    let (message, before) = manager.hears("EXTEND_TIMEOUT_USEC=");
    assert!(
        message.iter().any(|line| line.starts_with("STATUS=")),
        "{message:?}"
    );
    assert!(!before.iter().any(|line| line == "READY=1"), "{before:?}");
    hang.lift();
    broker.wait_until_it_answers();
    manager.hears("READY=1");
    let page = scrape(broker.admin());
    assert!(value(&page, "seawall_recovery_read_bytes_total") > Some(0.0));
    assert_eq!(
        value(&page, "seawall_recovery_partitions_opened"),
        Some(3.0)
    );
}

#[test]
fn recovery_shows_progress_on_a_terminal_and_is_quiet_elsewhere() {
    let (_fs, mut broker, hang) = recovering(&Manager::new());
    let shown = tempfile::NamedTempFile::new().expect("a file");
    let command = format!(
        "'{}' --data-dir '{}' --listen 127.0.0.1:0 --set admin.listener=",
        env!("CARGO_BIN_EXE_seawall"),
        broker.data().display()
    );
    let mut terminal = Command::new("script")
        .args(["-qfec", &command])
        .arg(shown.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("run script");
    let text = || String::from_utf8_lossy(&fs::read(shown.path()).unwrap_or_default()).into_owned();
    wait::until("progress is shown", SOON, || {
        text().contains("\r\x1b[Krecovery: 2 of 3 partitions open")
    });
    hang.lift();
    wait::until("it is over", SOON, || text().contains("listening on"));
    terminal.kill().expect("end script");
    terminal.wait().expect("collect script");
    wait::until("the broker on the terminal is gone", SOON, || {
        broker.launch_again();
        wait::until_some("it starts or ends", SOON, || broker.answers_or_ended())
    });
    assert!(!broker.log().contains('\x1b'), "{}", broker.log());
}

#[test]
fn a_partition_that_cannot_be_opened_is_told_with_its_reason() {
    let mut broker = setup().start();
    create_topic(&mut broker.connect(), "broken", 2, &[]);
    broker.shut_down();
    let dir = broker.partition_dir("broken", 1);
    fs::remove_dir_all(&dir).ok();
    fs::write(&dir, "not a directory").expect("write");
    broker.start_again();
    let told = health(&broker);
    assert_eq!(told["status"], "degraded", "{told}");
    assert_eq!(told["partitions"]["offline"], 1, "{told}");
    assert_eq!(told["unwell"][0]["partition"], 1, "{told}");
    let reason = told["unwell"][0]["reason"].as_str().expect("a reason");
    assert!(!reason.is_empty());
    assert_eq!(page(&broker, "/readyz").status, 200, "its reason is known");
    let state = "seawall_partition_state{topic=\"broken\",partition=\"1\"}";
    assert_eq!(value(&scrape(broker.admin()), state), Some(3.0));
}
