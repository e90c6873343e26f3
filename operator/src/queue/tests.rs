use super::*;

fn node(name: &str) -> Key {
    Key::Node(name.into())
}

fn probe(name: &str) -> Key {
    Key::Probe(ObjectKey::new("a", name))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn queue() -> (Queue, Instant) {
    (Queue::default(), Instant::now())
}

/// One that has just handed out this key.
fn taken(key: &Key) -> (Queue, Instant) {
    let (mut queue, now) = queue();
    queue.add(key.clone(), now);
    assert_eq!(queue.take(now, 9), std::slice::from_ref(key));
    (queue, now)
}

#[test]
fn keys_are_taken_when_due_the_longest_due_first_and_once() {
    let (mut queue, now) = queue();
    queue.add(node("later"), now + seconds(5));
    queue.add(node("b"), now - seconds(1));
    queue.add(node("a"), now);
    queue.add(node("a"), now + seconds(9));
    assert_eq!(queue.take(now, 1), [node("b")]);
    assert_eq!(queue.take(now, 9), [node("a")]);
    assert_eq!(queue.take(now, 9), []);
    assert_eq!(queue.next_due(), Some(now + seconds(5)));
}

#[test]
fn news_that_come_during_the_work_make_more_work_when_it_is_done() {
    let (mut queue, now) = taken(&node("a"));
    queue.add(node("a"), now);
    assert_eq!(queue.take(now, 9), []);
    assert_eq!(queue.next_due(), None);
    queue.done(&node("a"), true, now);
    assert_eq!(queue.take(now, 9), [node("a")]);
}

#[test]
fn a_status_is_written_once_a_second_however_many_news_there_are() {
    let (mut queue, now) = queue();
    let mut writes = 0;
    for tick in 0..100 {
        let now = now + Duration::from_millis(100) * tick;
        queue.add(probe("p"), now);
        for key in queue.take(now, 9) {
            writes += 1;
            queue.done(&key, true, now);
        }
    }
    assert_eq!(writes, 10);
}

#[test]
fn what_rests_waits_however_much_news_there_is() {
    let (mut queue, now) = taken(&probe("p"));
    queue.done(&probe("p"), true, now);
    // No shorter than the pace of writes.
    queue.rest(&probe("p"), now + Duration::from_millis(10));
    queue.add(probe("p"), now);
    assert_eq!(queue.next_due(), Some(now + seconds(1)));
    queue.rest(&probe("p"), now + seconds(3));
    assert_eq!(queue.take(now + seconds(2), 9), []);
    assert_eq!(queue.take(now + seconds(3), 9), [probe("p")]);
}

#[test]
fn a_few_of_a_thousand_are_those_that_wait_longest() {
    let (mut queue, now) = queue();
    for index in 0..1000_u64 {
        let early = Duration::from_millis((index * 7_919) % 1000);
        queue.add(
            node(&format!("{:03}", 999 - early.as_millis())),
            now - early,
        );
    }
    assert_eq!(queue.take(now, 3), [node("000"), node("001"), node("002")]);
    assert_eq!(queue.take(now, 0), []);
    assert_eq!(queue.take(now, 9999).len(), 997);
}

#[test]
fn looking_without_writing_is_not_paced() {
    let (mut queue, now) = taken(&probe("p"));
    queue.done(&probe("p"), false, now);
    queue.add(probe("p"), now);
    assert_eq!(queue.take(now, 9), [probe("p")]);
}

#[test]
fn what_fails_waits_longer_each_time_up_to_a_limit_and_delays_no_other() {
    let (mut queue, mut now) = queue();
    let mut waits = Vec::new();
    queue.add(probe("broken"), now);
    for _ in 0..20 {
        assert_eq!(queue.take(now, 9), [probe("broken")]);
        let wait = queue.again(&probe("broken"), now);
        queue.add(probe("broken"), now);
        assert_eq!(queue.take(now, 9), [], "news do not shorten the wait");
        queue.add(node("fine"), now);
        assert_eq!(queue.take(now, 9), [node("fine")]);
        queue.done(&node("fine"), true, now);
        waits.push(wait);
        now += wait;
    }
    assert!(
        waits[0] >= MIN_DELAY && waits[0] <= MIN_DELAY * 2,
        "{waits:?}"
    );
    assert!(
        waits[19] >= MAX_DELAY && waits[19] <= MAX_DELAY * 2,
        "{waits:?}"
    );
}

#[test]
fn success_ends_the_waits() {
    let (mut queue, now) = queue();
    queue.add(node("a"), now);
    for _ in 0..8 {
        queue.again(&node("a"), now);
    }
    queue.done(&node("a"), true, now);
    assert!(queue.again(&node("a"), now) <= MIN_DELAY * 2);
}

#[test]
fn work_that_does_not_last_is_done_ever_less_often_although_it_succeeds() {
    let (mut queue, mut now) = queue();
    let mut wait = Duration::ZERO;
    queue.add(node("a"), now);
    for _ in 0..9 {
        assert_eq!(queue.take(now, 9), [node("a")]);
        queue.hold(&node("a"), now);
        wait = queue.next_due().unwrap() - now;
        now += wait;
        assert_eq!(queue.take(now, 9), [node("a")]);
        queue.done(&node("a"), true, now);
        queue.add(node("a"), now);
    }
    assert!(wait >= MAX_DELAY, "{wait:?}");
    now += CALM + seconds(60);
    queue.take(now, 9);
    queue.hold(&node("a"), now);
    assert!(queue.next_due().unwrap() - now <= MIN_DELAY * 2);
}

#[test]
fn what_was_done_is_looked_at_again_at_once_upon_news_and_ever_later_without() {
    let (mut queue, mut now) = queue();
    queue.add(node("a"), now);
    for _ in 0..9 {
        queue.take(now, 9);
        queue.complete(&node("a"), now);
        now = queue.next_due().unwrap();
    }
    queue.take(now, 9);
    queue.complete(&node("a"), now);
    assert!(queue.next_due().unwrap() - now >= MAX_DELAY);
    queue.add(node("a"), now);
    assert_eq!(queue.take(now, 9), [node("a")]);
}

#[test]
fn what_is_idle_is_forgotten() {
    let (mut queue, now) = taken(&probe("p"));
    queue.done(&probe("p"), true, now);
    queue.take(now + seconds(2), 9);
    assert!(queue.items.is_empty());
}
