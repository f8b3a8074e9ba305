use super::*;

fn jobs() -> (Arc<SummaryJobs>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    (Arc::new(SummaryJobs::new(&metrics)), metrics)
}

fn id(number: u8) -> JobId {
    JobId([number; 8])
}

/// The request with this key, whose job would have this id.
fn request(key: u8, job: u8, max_running: usize) -> JobRequest {
    JobRequest {
        key: StateKey::from_bytes([key; 16]),
        id: id(job),
        model: BackoffSubject::Account([255; 16]),
        user: BackoffSubject::Session([key; 16]),
        ordered: false,
        max_running,
    }
}

#[track_caller]
fn new(start: JobStart) -> JobTicket {
    match start {
        JobStart::New(ticket) => ticket,
        _ => panic!("no new job"),
    }
}

fn summary() -> Option<Summary> {
    Some(Summary {
        boundary: 3,
        text: "s".into(),
    })
}

#[test]
fn the_same_request_has_one_job() {
    let (jobs, _metrics) = jobs();
    let ticket = new(jobs.begin_job(request(1, 1, 9)));
    let joins_first = |job| matches!(jobs.begin_job(request(1, job, 9)), JobStart::Joined(first) if first == id(1));
    assert!(joins_first(2));
    ticket.deliver_outcome("made", summary());
    assert!(joins_first(3));
    let result = jobs.find_result(id(1)).unwrap().now_or_never();
    assert_eq!(result.unwrap().unwrap().summary, summary());
    // Another request has another job.
    new(jobs.begin_job(request(2, 4, 9))).deliver_outcome("failed", None);
    assert!(matches!(jobs.begin_job(request(2, 5, 9)), JobStart::Failed));
}

#[test]
fn a_dropped_job_makes_room_for_another() {
    let (jobs, metrics) = jobs();
    let ticket = new(jobs.begin_job(request(1, 1, 1)));
    let second = jobs.begin_job(request(2, 2, 1));
    assert!(matches!(second, JobStart::Skipped));
    drop(ticket);
    let result = jobs.find_result(id(1)).unwrap().now_or_never();
    assert!(result.unwrap().is_err());
    drop(new(jobs.begin_job(request(1, 3, 1))));
    let text = metrics.render_text(std::iter::empty(), 0);
    assert!(text.contains("plimsoll_summaries_running 0\n"), "{text}");
    // The one beyond the bound, and the two that were not run.
    let skipped = r#"plimsoll_summaries_total{outcome="skipped"} 3"#;
    assert!(text.contains(skipped), "{text}");
}

#[test]
fn paused_users_and_models_begin_no_job() {
    let (jobs, _metrics) = jobs();
    let one_user = |key, ordered| JobRequest {
        user: BackoffSubject::Account([1; 16]),
        ordered,
        ..request(key, key, 1)
    };
    for key in 0..8 {
        new(jobs.begin_job(one_user(key, false))).deliver_outcome("made", summary());
    }
    let paused = jobs.begin_job(one_user(8, false));
    assert!(matches!(paused, JobStart::Skipped));
    // A command is carried out all the same.
    new(jobs.begin_job(one_user(9, true))).deliver_outcome("made", summary());
    jobs.mark_used(&BackoffSubject::Account([1; 16]));
    for key in 10..18 {
        let ticket = new(jobs.begin_job(one_user(key, false)));
        ticket.record_model(request(0, 0, 0).model, false);
    }
    let paused = jobs.begin_job(request(20, 20, 1));
    assert!(matches!(paused, JobStart::Skipped));
}

#[test]
fn the_number_of_jobs_and_of_their_followers_is_bounded() {
    let (jobs, _metrics) = jobs();
    for number in 0..=255 {
        new(jobs.begin_job(request(number, number, 1))).deliver_outcome("failed", None);
    }
    assert!(jobs.find_result(id(0)).is_none());
    assert!(jobs.find_result(id(255)).is_some());
    let followers = (0..100).filter_map(|_| jobs.follow_job(id(255)));
    assert_eq!(followers.count(), MAX_FOLLOWERS);
}

#[test]
fn a_late_job_stays_late() {
    let (jobs, _metrics) = jobs();
    let _ticket = new(jobs.begin_job(request(1, 1, 1)));
    assert!(!jobs.is_late(id(1)));
    jobs.mark_late(id(1));
    assert!(jobs.is_late(id(1)) && !jobs.is_late(id(2)));
}
