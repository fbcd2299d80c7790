long sum(const int* numbers, long count);
