extern "C" int some_other_symbol;
int some_other_symbol = 0;
