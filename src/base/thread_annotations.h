// Which lock guards what, in a form that Clang proves at compile time (-Wthread-safety); other compilers read comments.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html says what each annotation means.
//
// The analysis goes function by function and knows a lock by the expression that names it. Where that is too little (a
// lambda, which is a function of its own; locks of many objects, held in a loop), the code says what it knows by
// assume_held() of the lock, or a function is MG_NO_THREAD_SAFETY_ANALYSIS, with the reason beside it.
#pragma once

#ifdef __clang__
#define MG_THREAD_ANNOTATION(...) __attribute__((__VA_ARGS__))
#else
#define MG_THREAD_ANNOTATION(...)
#endif

// Of a class: it is a lock (a "capability", to Clang).
#define MG_CAPABILITY(name) MG_THREAD_ANNOTATION(capability(name))
// Of a class: it takes a lock when it begins, and gives it back when it ends.
#define MG_SCOPED_CAPABILITY MG_THREAD_ANNOTATION(scoped_lockable)

// Of a member: it is used with the lock held; the same for what a pointer points to.
#define MG_GUARDED_BY(lock) MG_THREAD_ANNOTATION(guarded_by(lock))
#define MG_PT_GUARDED_BY(lock) MG_THREAD_ANNOTATION(pt_guarded_by(lock))

// Of a function: its caller holds the locks, and still does afterwards.
#define MG_REQUIRES(...) MG_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// Of a function: its caller does not hold the locks, because the function takes them itself.
#define MG_EXCLUDES(...) MG_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// Of a function: it takes the locks, gives them back, or takes them if it returns `result`.
#define MG_ACQUIRE(...) MG_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define MG_RELEASE(...) MG_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define MG_TRY_ACQUIRE(result, ...) MG_THREAD_ANNOTATION(try_acquire_capability(result __VA_OPT__(, ) __VA_ARGS__))
// Of a function: after a call of it, the analysis takes the lock to be held.
#define MG_ASSUMES_HELD(...) MG_THREAD_ANNOTATION(assert_capability(__VA_ARGS__))
// Of a function: it returns the lock.
#define MG_RETURN_CAPABILITY(lock) MG_THREAD_ANNOTATION(lock_returned(lock))

// Of a function that the analysis cannot follow. A comment says why, and what holds instead.
#define MG_NO_THREAD_SAFETY_ANALYSIS MG_THREAD_ANNOTATION(no_thread_safety_analysis)
